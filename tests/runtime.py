"A local copy of the runtime that the live pages load from a CDN, by npm."
import functools, os, re, shutil, subprocess, tempfile
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parent.parent/'nbs/site/live/runtime.js'
VERSION = re.search(r"VERSION = '([^']+)'", SCRIPT.read_text())[1]
CDN = f'https://cdn.jsdelivr.net/npm/onnxruntime-web@{VERSION}/dist/'


@functools.cache
def copied():
    "The folder that stands for CDN, or why there is none. ATTNFREE_NPM is where it is kept."
    kept = Path(os.environ.get('ATTNFREE_NPM', Path(tempfile.gettempdir())/'attnfree_npm'))
    folder = kept/f'onnxruntime-web-{VERSION}'
    if folder.exists(): return folder/'package/dist'
    npm = shutil.which('npm')
    if npm is None: return 'needs npm'
    kept.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=kept) as new:
        try: done = subprocess.run([npm, 'pack', '--silent', f'onnxruntime-web@{VERSION}'],
                                   cwd=new, capture_output=True, text=True, timeout=300)
        except subprocess.TimeoutExpired: return 'npm took longer than 300 s'
        if done.returncode: return f'npm has no copy: {done.stderr.strip()[-200:]}'
        shutil.unpack_archive(Path(new)/f'onnxruntime-web-{VERSION}.tgz', Path(new)/'all')
        try: (Path(new)/'all').rename(folder)
        except OSError: pass  # another process was first
    return folder/'package/dist'


def runtime_folder():
    "The folder that stands for CDN; without one the test is skipped."
    found = copied()
    if isinstance(found, str): pytest.skip(found)
    return found
