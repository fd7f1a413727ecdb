"The runtime that the live pages load, as .ci/live.py fetches it."
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent/'.ci'))
import live

OWN = 'site/live/runtime/'  # where the site has it


def runtime_folder():
    "The folder that stands for a CDN; without one the test is skipped."
    try: return live.runtime()
    except OSError as error: pytest.skip(str(error))
