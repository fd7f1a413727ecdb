"Texts: tokenizers, corpora on disk, training objectives; networks are in `attnfree.text.model`."
from attnfree.text.tokens import *
from attnfree.text.corpus import *
from attnfree.text.objectives import *
