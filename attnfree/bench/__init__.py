"Models and operators timed side by side, and the command `attnfree_bench`, which is light to import."
from attnfree.bench.command import attnfree_bench
