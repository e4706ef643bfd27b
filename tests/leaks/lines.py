"""The table: classes of what keeps session state without saying so, a line for each text or object."""

from leaks import attack, bodies, changed, forms, newer, objects, protocol, texts

CLASSES = (texts.CLASSES | bodies.CLASSES | objects.CLASSES | protocol.CLASSES | changed.CLASSES
           | forms.CLASSES | newer.CLASSES | attack.CLASSES)
RARE = (set(forms.CLASSES) | set(attack.CLASSES)) - forms.FOUND - attack.FOUND
