"What networks cost: parameters, multiply-adds and time, side by side."
from attnfree.cost.count import *
from attnfree.cost.gmlp import *
