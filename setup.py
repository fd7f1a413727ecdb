"Packages `attnfree` from what `settings.ini` says; nothing is stated twice."
from configparser import ConfigParser
from pathlib import Path
from setuptools import find_packages, setup

parser = ConfigParser(delimiters=['='])
parser.read('settings.ini', encoding='utf-8')
settings = parser['DEFAULT']

setup(
    name=settings['lib_name'],
    version=settings['version'],
    description=settings['description'],
    long_description=Path('README.md').read_text(encoding='utf-8'),
    long_description_content_type='text/markdown',
    author=settings['author'],
    author_email=settings['author_email'],
    url=settings['git_url'],
    keywords=settings['keywords'].split(),
    license='Apache-2.0',
    project_urls={'Documentation': settings['doc_host'] + settings['doc_baseurl'], 'Source': settings['git_url']},
    packages=find_packages(include=['attnfree', 'attnfree.*']),
    package_data={'attnfree': ['weights/*/*', 'live/site/*']},
    python_requires='>=' + settings['min_python'],
    install_requires=settings['requirements'].split(),
    extras_require={'dev': ' '.join(settings[f'{name}_requirements']
                                    for name in ('dev', 'baselines', 'onnx', 'transformers')).split(),
                    'baselines': settings['baselines_requirements'].split(),
                    'onnx': settings['onnx_requirements'].split(),
                    'transformers': settings['transformers_requirements'].split()},
    entry_points={
        'console_scripts': settings['console_scripts'].split(),
        'nbdev': [f"{settings['lib_name']}={settings['lib_name']}._modidx:d"],
    },
)
