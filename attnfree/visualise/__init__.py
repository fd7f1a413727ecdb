"Pictures of what mixers learn: weights over tokens, position biases, gates, attention maps."
from attnfree.visualise.weights import *
from attnfree.visualise.aft import *
from attnfree.visualise.gates import *
from attnfree.visualise.less_attention import *
from attnfree.visualise.networks import *
