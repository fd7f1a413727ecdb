"The Attention Free Transformer's mixers (Zhai et al. 2021): simple, full, local and conv."
from attnfree.aft.variants import *
from attnfree.aft.conv import *
from attnfree.aft.sparse import *
