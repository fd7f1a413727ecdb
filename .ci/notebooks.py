"""Runs `nbdev_test` with the options given and counts: a line per notebook with its time, then `notebooks: N passed, M failed`.

`nbdev_test` itself prints neither. A notebook fails by an error or by taking over a minute, when it runs beside others and once more alone (machines are shared); every error is shown.
"""
import os, re, subprocess, sys, tempfile, time
from pathlib import Path

LIMIT = 60


def main(options):
    "Run the tests; returns `{notebook: (passed, seconds)}`."
    started, seconds = {}, {}
    # Each worker says when it starts and ends a notebook; unbuffered, so that the lines come at that moment.
    with tempfile.TemporaryFile('w+') as errors:
        process = subprocess.Popen([Path(sys.executable).parent/'nbdev_test', '--do_print', *options], stdout=subprocess.PIPE, stderr=errors, text=True,
                                   env={'OMP_NUM_THREADS': '1', **os.environ, 'PYTHONUNBUFFERED': '1'})  # notebooks run side by side: a thread each
        for line in process.stdout:   # two workers may write into one line
            for event, path in re.findall(r'(Starting|Completed) (.+?\.ipynb)', line):
                name = Path(path).name
                if event == 'Starting': started[name] = time.time()
                else: seconds[name] = time.time() - started[name]
        code = process.wait()
        errors.seek(0)
        text = errors.read()
    listed = text.partition('nbdev Tests Failed On The Following Notebooks:')[2].split()
    sys.stdout.write(text if code else '')
    if code and not listed: seconds.clear()   # it broke down: nothing is known to have passed
    return {name: (name in seconds and name not in listed and seconds[name] <= LIMIT, seconds.get(name)) for name in started}


if __name__ == '__main__':
    results = main(sys.argv[1:])
    for name, (passed, took) in sorted(results.items()):
        if not passed and took is not None and took > LIMIT and '--path' not in sys.argv:
            alone = main([*sys.argv[1:], '--path', str(next(Path('nbs').glob(f'**/{name}')))])
            results[name] = min(alone[name], results[name], key=lambda result: (not result[0], result[1] or 1e9))
    for name, (passed, took) in sorted(results.items()):
        note = '  (did not end)' if took is None else f'  {took:5.1f} s' + (f'  (over {LIMIT} s)' if took > LIMIT else '')
        print(f"{'passed' if passed else 'FAILED'}  {name:24}{note}")
    failed = sum(not passed for passed, _ in results.values())
    print(f"notebooks: {len(results) - failed} passed, {failed} failed")
    sys.exit(bool(failed or not results))
