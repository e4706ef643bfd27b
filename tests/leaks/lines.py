"""The table: classes of texts and objects that change session state without naming it, one line each."""

from leaks import attack, bodies, changed, forms, late, newer, objects, protocol, tenants, texts, undone

CLASSES = (texts.CLASSES | bodies.CLASSES | objects.CLASSES | protocol.CLASSES | changed.CLASSES
           | forms.CLASSES | newer.CLASSES | attack.CLASSES | late.CLASSES
           | undone.CLASSES | tenants.CLASSES)
RARE = (set(forms.CLASSES) | set(attack.CLASSES) | set(tenants.CLASSES)) - forms.FOUND - attack.FOUND - tenants.USUAL | {"DDL by DO"}
