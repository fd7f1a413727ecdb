"What is packed and published: sdist and wheel, one version everywhere, no trace of a machine."
import os, re, shutil, subprocess, sys, tarfile, zipfile
from configparser import ConfigParser
from pathlib import Path

import pytest, yaml

ROOT = Path(__file__).parent.parent
IGNORED = shutil.ignore_patterns('.git', 'build', 'dist', '*.egg-info', '__pycache__', 'runs',
                                 '_proc', '_docs', '.venv', '.ipynb_checkpoints')


def settings():
    parser = ConfigParser(delimiters=['='])
    parser.read(ROOT/'settings.ini', encoding='utf-8')
    return parser['DEFAULT']


def run(*command, **options):
    "Run a command and return what it prints; show both streams if it fails."
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True, **options)
    assert done.returncode == 0, f"{command} failed:\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    return done.stdout


@pytest.fixture(scope='module')
def built(tmp_path_factory):
    "`(sdist, wheel)`, the wheel built from the sdist, both isolated and outside the checkout."
    tmp = tmp_path_factory.mktemp('package')
    shutil.copytree(ROOT, tmp/'tree', ignore=IGNORED)
    run(sys.executable, '-m', 'build', '--outdir', tmp/'dist', tmp/'tree')
    return next((tmp/'dist').glob('*.tar.gz')), next((tmp/'dist').glob('*.whl'))


def test_sdist(built):
    with tarfile.open(built[0]) as archive:
        names = {name.partition('/')[2] for name in archive.getnames()}
    assert {'settings.ini', 'setup.py', 'pyproject.toml', 'README.md', 'LICENSE', 'CHANGELOG.md',
            'attnfree/__init__.py'} <= names


def test_wheel(built):
    with zipfile.ZipFile(built[1]) as archive:
        names = set(archive.namelist())
        info = next(n.split('/')[0] for n in names if n.endswith('.dist-info/METADATA'))
        metadata = archive.read(f'{info}/METADATA').decode()
        commands = archive.read(f'{info}/entry_points.txt').decode()
    modules = {p.relative_to(ROOT).as_posix() for p in (ROOT/'attnfree').rglob('*.py')}
    weights = {p.relative_to(ROOT).as_posix() for p in (ROOT/'attnfree/weights').glob('*/*')}
    assert len(weights) == 4*18
    live = {p.relative_to(ROOT).as_posix() for p in (ROOT/'attnfree/live/site').iterdir()}
    assert {n for n in names if not n.startswith(info)} == modules | weights | live
    assert 'attnfree/live/site/explain.html' in names
    assert f"\nVersion: {settings()['version']}\n" in metadata
    assert f"\nRequires-Python: >={settings()['min_python']}\n" in metadata
    for command in settings()['console_scripts'].split():
        assert command.replace('=', ' = ') in commands
    needed = [line for line in metadata.splitlines() if line.startswith('Requires-Dist: ')]
    always = {re.split(r'[<>=;\s]', line[15:])[0] for line in needed if 'extra ==' not in line}
    assert always == {re.split(r'[<>=]', r)[0] for r in settings()['requirements'].split()}


def test_every_requirement_has_a_bound_that_is_tested():
    "`.ci/oldest` installs the lower bounds, so each must be one version."
    extra = settings()['transformers_requirements']
    for requirement in settings()['requirements'].split() + extra.split():
        assert re.fullmatch(r'[a-z-]+>=\d+\.\d+\.\d+', requirement), requirement
    assert 'sed \'s/>=/==/\'' in (ROOT/'.ci/oldest').read_text()
    assert 'bash .ci/oldest' in (ROOT/'.github/workflows/test.yaml').read_text()


def test_wheel_works_outside_the_checkout(built, tmp_path):
    site = tmp_path/'site'
    run(sys.executable, '-m', 'pip', 'install', '--quiet', '--no-deps', '--target', site, built[1])
    paths = [p.relative_to(ROOT).with_suffix('') for p in sorted((ROOT/'attnfree').rglob('*.py'))]
    modules = ['.'.join(path.parts) for path in paths if path.name != '_modidx']
    modules = [name.removesuffix('.__init__') for name in modules]
    script = (f"import importlib, sys; sys.path.insert(0, {str(site)!r})\n"
              f"for name in {modules!r}: print(importlib.import_module(name).__file__)")
    environment = {k: v for k, v in os.environ.items() if k != 'PYTHONPATH'}
    files = run(sys.executable, '-c', script, cwd=tmp_path, env=environment).split()
    assert len(files) == len(modules) and all(f.startswith(str(site)) for f in files)


def test_one_version_everywhere():
    version = settings()['version']
    assert f'__version__ = "{version}"' in (ROOT/'attnfree/__init__.py').read_text()
    assert str(yaml.safe_load((ROOT/'CITATION.cff').read_text())['version']) == version
    assert f'\n## {version}\n' in (ROOT/'CHANGELOG.md').read_text()


def test_site_settings():
    "The site's configuration is one file with two paths, and agrees with `settings.ini`."
    link = ROOT/'nbs/_quarto.yml'
    assert link.is_symlink() and os.readlink(link) == '../_quarto.yml'
    website = yaml.safe_load(link.read_text())['website']
    assert website['navbar']['right'][0]['href'] == settings()['git_url']
    assert website['repo-subdir'] == settings()['nbs_path']
    assert 'custom_quarto_yml' not in settings() and settings().getboolean('custom_sidebar')


def test_readme_has_the_two_commands():
    text = (ROOT/'README.md').read_text()
    assert 'pip install . && attnfree_train' in text
    assert "pip install -e '.[dev]' && nbdev_test" in text


# Written so that this file does not match them itself.
MACHINE = re.compile(r'(?<![\w.$}>)-])/(?:work|root|home|Users|tmp|opt)/[\w.-]+'
                     r'|(?:extra-)?index-u[r]l|pythonhoste[d]|pypi\.or[g]/simple'
                     r'|download\.pytorc[h]|artifactor[y]|\bsonatyp[e]')


def files():
    "All files that are or would be committed."
    command = ['git', 'ls-files', '-coz', '--exclude-standard']
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    return [ROOT/f for f in listed.stdout.split('\0') if f and (ROOT/f).is_file()]


def test_no_trace_of_a_machine():
    if not (ROOT/'.git').exists():
        pytest.skip('not a git checkout: which files are committed is not known')
    found = []
    for path in files():
        try: text = path.read_text(encoding='utf-8')
        except UnicodeDecodeError: continue
        found += [f'{path.relative_to(ROOT)}: {m[0]}' for m in MACHINE.finditer(text)]
    assert len(files()) > 20 and not found


@pytest.mark.parametrize('text', ['see /' + 'work/env/x.py:3', '"/' + 'home/me/data"',
                                  '--index-' + 'url x', 'https://files.python' + 'hosted.org'])
def test_a_trace_is_noticed(text): assert MACHINE.search(text)


@pytest.mark.parametrize('text', ['../shared/data', 'https://example.org/work/page', 'nbs/home/x',
                                  'path/tmp/x'])
def test_other_paths_are_not(text): assert not MACHINE.search(text)
