"A download that is cut off or killed leaves nothing that later loads as if it were whole."
import hashlib, io, random, signal, subprocess, sys, tarfile, threading, time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from attnfree.data import download


def packed():
    "The bytes of a small archive with the folder `things`."
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode='w:gz') as tar:
        info = tarfile.TarInfo('things/a.bin')
        info.size = 200_000
        tar.addfile(info, io.BytesIO(random.Random(0).randbytes(info.size)))
    return file.getvalue()


ARCHIVE = packed()
MD5 = hashlib.md5(ARCHIVE).hexdigest()


class Handler(BaseHTTPRequestHandler):
    "Serves the archive at `/whole`; halfway it hangs up at `/broken`, falls silent at `/silent`."
    def do_GET(self):
        self.send_response(200)
        self.send_header('Content-Length', str(len(ARCHIVE)))
        self.end_headers()
        if self.path == '/whole': return self.wfile.write(ARCHIVE)
        self.wfile.write(ARCHIVE[:len(ARCHIVE)//2])
        self.wfile.flush()
        if self.path == '/silent': self.server.closing.wait(120)

    def log_message(self, *args): pass


@pytest.fixture
def url(monkeypatch):
    "Address of a server on this machine."
    monkeypatch.setenv('no_proxy', '127.0.0.1')
    server = ThreadingHTTPServer(('127.0.0.1', 0), Handler)
    server.closing = threading.Event()
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f'http://127.0.0.1:{server.server_port}'
    server.closing.set()
    server.shutdown()
    server.server_close()


def test_whole(url, tmp_path):
    assert download(f'{url}/whole', tmp_path/'things', MD5) == tmp_path/'things'
    assert (tmp_path/'things/a.bin').stat().st_size == 200_000
    assert [o.name for o in tmp_path.iterdir()] == ['things']


def test_connection_breaks(url, tmp_path):
    with pytest.raises(OSError, match='could not fetch things.*retrieval incomplete'):
        download(f'{url}/broken', tmp_path/'things', MD5)
    assert not list(tmp_path.iterdir())
    download(f'{url}/whole', tmp_path/'things', MD5)
    assert (tmp_path/'things/a.bin').exists()


def test_wrong_checksum(url, tmp_path):
    with pytest.raises(OSError, match='checksum'):
        download(f'{url}/whole', tmp_path/'things', '0'*32)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize('how', [signal.SIGKILL, signal.SIGINT])
def test_process_ends_in_the_middle(url, tmp_path, how):
    code = ("from attnfree.data import download; "
            f"download('{url}/silent', '{tmp_path}/things', '{MD5}')")
    def hear(): signal.signal(signal.SIGINT, signal.SIG_DFL)  # a background job may ignore it
    process = subprocess.Popen([sys.executable, '-c', code], stdout=subprocess.DEVNULL,
                               stderr=subprocess.DEVNULL, preexec_fn=hear)
    def begun(): return any(o.stat().st_size for o in tmp_path.glob('.things-*/archive.tgz'))
    try:
        end = time.time() + 120
        while not begun():
            assert process.poll() is None and time.time() < end, 'the download never began'
            time.sleep(0.1)
        process.send_signal(how)
        assert process.wait(60) != 0
    finally:
        process.kill()
    assert not (tmp_path/'things').exists()
    download(f'{url}/whole', tmp_path/'things', MD5)
    assert (tmp_path/'things/a.bin').stat().st_size == 200_000
