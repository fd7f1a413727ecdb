"A headless chromium for tests, spoken to over its debugging port."
import base64, functools, http.server, json, mimetypes, shutil, subprocess, tempfile, threading
import time
from contextlib import contextmanager, suppress
from pathlib import Path

import websocket  # from websocket-client, which jupyterlab brings along

NAMES = ['chromium', 'chromium-browser', 'google-chrome']
CHROMIUM = next(filter(None, map(shutil.which, NAMES)), None)
FLAGS = ['--headless', '--no-sandbox', '--disable-gpu', '--no-first-run', '--disable-sync',
         '--disable-background-networking', '--disable-component-update',
         '--disable-dev-shm-usage', '--window-size=1280,1600', '--remote-debugging-port=0',
         '--remote-allow-origins=*']


class Browser:
    "One tab: open pages, evaluate JavaScript, take screenshots, hear what goes wrong."
    def __init__(self, socket):
        self.socket, self.count, self.events = socket, 0, []
        self.folders, self.requests = {}, []  # of `route`

    def post(self, method, **params):
        "Send a command of the DevTools protocol and do not wait for its answer; returns its id."
        self.count += 1
        self.socket.send(json.dumps({'id': self.count, 'method': method, 'params': params}))
        return self.count

    def send(self, method, **params):
        "Send a command of the DevTools protocol and return its result."
        number = self.post(method, **params)
        while True:
            message = json.loads(self.socket.recv())
            if message.get('id') == number:
                if 'error' in message:
                    raise RuntimeError(f"{method}: {message['error']['message']}")
                return message['result']
            if message.get('method') == 'Fetch.requestPaused': self.answer(message['params'])
            elif 'method' in message: self.events.append(message)

    def route(self, folders):
        """Answer requests for each address in `folders` from the folder that it names; `None`
        blocks them. From now on `requests` lists what the page asks for, and nothing else leaves
        this machine."""
        self.folders = folders
        self.send('Fetch.enable', patterns=[{'urlPattern': '*'}])

    def answer(self, paused):
        "Let a request go on, answer it from a folder, or block it."
        request, url = paused['requestId'], paused['request']['url']
        self.requests.append(url)
        prefix = next((start for start in self.folders if url.startswith(start)), None)
        folder = self.folders.get(prefix)
        file = folder and Path(folder)/url.removeprefix(prefix)
        if url.startswith(('http://127.0.0.1:', 'file:', 'data:', 'blob:')) and prefix is None:
            self.post('Fetch.continueRequest', requestId=request)
        elif file and file.is_file():
            kind = 'text/javascript' if file.suffix == '.mjs' else mimetypes.guess_type(file)[0]
            headers = {'Access-Control-Allow-Origin': '*', 'Content-Type': kind or 'text/plain'}
            self.post('Fetch.fulfillRequest', requestId=request, responseCode=200,
                      responseHeaders=[dict(name=n, value=v) for n, v in headers.items()],
                      body=base64.b64encode(file.read_bytes()).decode())
        else: self.post('Fetch.failRequest', requestId=request, errorReason='BlockedByClient')

    def evaluate(self, script):
        "The value of a JavaScript expression; promises are awaited."
        result = self.send('Runtime.evaluate', expression=script, awaitPromise=True,
                           returnByValue=True)
        if 'exceptionDetails' in result:
            raise RuntimeError(f"{script}: {result['exceptionDetails']}")
        return result['result'].get('value')

    def open(self, url, timeout=30):
        "Load `url` and wait until its pictures are there."
        self.events.clear()
        self.send('Page.navigate', url=url)
        end = time.time() + timeout
        here = f'location.href.startsWith({json.dumps(url)})'
        while not self.evaluate(f"{here} && document.readyState == 'complete'"):
            if time.time() > end: raise TimeoutError(f"{url} did not load in {timeout} s")
            time.sleep(0.1)

    def appears(self, selector, timeout=30):
        "Wait for an element."
        end = time.time() + timeout
        while not self.evaluate(f"!!document.querySelector('{selector}')"):
            if time.time() > end: raise TimeoutError(f"no {selector} within {timeout} s")
            time.sleep(0.1)

    def errors(self):
        "The page's exceptions, calls of `console.error` and files that did not load."
        self.evaluate('new Promise(done => setTimeout(done, 200))')
        found = []
        for event in self.events:
            params = event.get('params', {})
            if event['method'] == 'Runtime.exceptionThrown':
                details = params['exceptionDetails']
                description = details.get('exception', {}).get('description', '')
                found.append(f"{details['text']} {description}")
            elif event['method'] == 'Runtime.consoleAPICalled' and params['type'] == 'error':
                found.append(str(params['args']))
            elif event['method'] == 'Log.entryAdded' and params['entry']['level'] == 'error':
                found.append(f"{params['entry']['text']} {params['entry'].get('url', '')}")
        return found

    def screenshot(self, path):
        "Save what is seen as a PNG."
        Path(path).write_bytes(base64.b64decode(self.send('Page.captureScreenshot')['data']))


@contextmanager
def browser():
    "Start chromium with a fresh profile; it is stopped and its profile removed at the end."
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        process = subprocess.Popen([CHROMIUM, *FLAGS, f'--user-data-dir={profile}', 'about:blank'],
                                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            port_file, end = Path(profile)/'DevToolsActivePort', time.time() + 60
            while not (port_file.exists() and port_file.read_text().count('\n')):
                if process.poll() is not None or time.time() > end:
                    raise RuntimeError('chromium did not start')
                time.sleep(0.1)
            port, path = port_file.read_text().split()
            address = f'ws://127.0.0.1:{port}'
            whole = Browser(websocket.create_connection(f'{address}{path}', timeout=60))
            target = whole.send('Target.createTarget', url='about:blank')['targetId']
            page = f'{address}/devtools/page/{target}'
            tab = Browser(websocket.create_connection(page, timeout=60))
            for domain in ('Page', 'Runtime', 'Log'): tab.send(f'{domain}.enable')
            yield tab
            whole.send('Browser.close')
            with suppress(subprocess.TimeoutExpired): process.wait(timeout=20)
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()


class Quiet(http.server.SimpleHTTPRequestHandler):
    "Serves files without a line for each."
    def log_message(self, *args): pass


@contextmanager
def served(folder):
    "Serve `folder` on a free local port; yields its address."
    handler = functools.partial(Quiet, directory=str(folder))
    with http.server.ThreadingHTTPServer(('127.0.0.1', 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f'http://127.0.0.1:{server.server_port}/'
        server.shutdown()
