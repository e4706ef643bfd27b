/*
 * inject.c
 *		Lets a step fail that could fail in earnest.  Only in a build for tests:
 *
 *	make PG_CONFIG=... COPT=-DPGWEIR_INJECT
 *
 * `SET pgweir.inject_at = 3` makes the third step from now fail, and no other.
 */
#include "postgres.h"

#include "utils/guc.h"

#include "pgweir_assist.h"

#ifdef PGWEIR_INJECT

static int	inject_at;
static int	steps_left;

static void
assign_inject_at(int new_value, void *extra)
{
	steps_left = new_value;
}

void
inject_define(void)
{
	DefineCustomIntVariable("pgweir.inject_at", "The step that is to fail.", NULL, &inject_at,
							0, 0, PG_INT32_MAX, PGC_USERSET, GUC_NO_SHOW_ALL,
							NULL, assign_inject_at, NULL);
}

bool
inject_failure(void)
{
	return steps_left > 0 && --steps_left == 0;
}

#else

void
inject_define(void)
{
}

#endif
