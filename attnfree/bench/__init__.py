"Models and operators timed side by side, and the command `attnfree_bench`."
from attnfree.bench.models import *
from attnfree.bench.less_attention import *
from attnfree.bench.sequences import *
from attnfree.bench.command import *
