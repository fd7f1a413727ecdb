"Runs: planned, trained, evaluated, predicted with, compared, continued, swept, published."
from attnfree.run.plan import *
from attnfree.run.training import *
from attnfree.run.evaluation import *
from attnfree.run.prediction import *
from attnfree.run.comparison import *
from attnfree.run.generation import *
from attnfree.run.sweep import *
from attnfree.run.workers import *
from attnfree.run.hub import *
from attnfree.run.export import *
