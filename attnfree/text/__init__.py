"Texts: tokenizers, corpora on disk, training objectives and networks."
from attnfree.text.tokens import *
from attnfree.text.corpus import *
from attnfree.text.objectives import *
from attnfree.text.model import *
