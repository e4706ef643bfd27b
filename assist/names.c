/*
 * names.c
 *		A bounded list of names, in memory of its own.
 *
 * Names come from statements, before these are run; whether there is such a
 * thing is asked when it matters.  Nothing here allocates.
 */
#include "postgres.h"

#include "pgweir_assist.h"

/*
 * Remembers a name.  If there is no room, names of what is gone make some; if
 * there is none even then, the list knows only that there are more.
 */
void
names_add(NameList *list, const char *name, NameIsLive is_live)
{
	for (int i = 0; i < list->count; i++)
	{
		if (strncmp(list->names[i], name, NAMEDATALEN) == 0)
			return;
	}
	if (list->count == NAMES_MAX)
		names_keep_live(list, is_live);
	if (list->count == NAMES_MAX)
	{
		list->overflowed = true;
		return;
	}
	strlcpy(list->names[list->count++], name, NAMEDATALEN);
}

/* Forgets the names of what is gone. */
void
names_keep_live(NameList *list, NameIsLive is_live)
{
	int			kept = 0;

	for (int i = 0; i < list->count; i++)
	{
		if (!is_live(list->names[i]))
			continue;
		if (kept != i)
			memcpy(list->names[kept], list->names[i], NAMEDATALEN);
		kept++;
	}
	list->count = kept;
}

/* All of them are known to be gone. */
void
names_clear(NameList *list)
{
	list->count = 0;
	list->overflowed = false;
}
