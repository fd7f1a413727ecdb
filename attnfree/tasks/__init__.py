"Tasks: what a network is trained to do with the examples of a data set."
from attnfree.tasks.task import *
from attnfree.tasks.networks import *
from attnfree.tasks.classes import *
from attnfree.tasks.images import *
from attnfree.tasks.texts import *
from attnfree.tasks.answers import *
from attnfree.tasks.sequences import *

for _task in (Classification(), MaskedLanguageModel(), LanguageModel('lm', 'byte', 'text'),
              LanguageModel('pixels', 'dim', 'images'), TextClassification(),
              QuestionAnswering(), AssociativeRecall()): register_task(_task)
