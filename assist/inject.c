/*
 * inject.c
 *		Lets a step fail that could fail in earnest.  Only in a build for tests:
 *
 *	make PG_CONFIG=... COPT=-DPGWEIR_INJECT
 *
 * `SET pgweir.inject_at = 3` makes the third step from now fail, and no other;
 * `SHOW pgweir.inject_at` tells how many are left until then.
 *
 * `SET pgweir.inject_memory = 64` leaves this process 64 kB to grow; 0 ends it.
 */
#include "postgres.h"

#include <sys/resource.h>
#include <unistd.h>

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

static const char *
show_inject_at(void)
{
	static char left[16];

	snprintf(left, sizeof(left), "%d", steps_left);
	return left;
}

static int	inject_memory;

static void
assign_inject_memory(int new_value, void *extra)
{
	struct rlimit limit;
	unsigned long pages = 0;
	FILE	   *statm;

	getrlimit(RLIMIT_AS, &limit);
	limit.rlim_cur = limit.rlim_max;
	statm = new_value > 0 ? fopen("/proc/self/statm", "r") : NULL;
	if (statm != NULL)
	{
		if (fscanf(statm, "%lu", &pages) == 1)
			limit.rlim_cur = pages * sysconf(_SC_PAGESIZE) + new_value * 1024L;
		fclose(statm);
	}
	setrlimit(RLIMIT_AS, &limit);
}

void
inject_define(void)
{
	DefineCustomIntVariable("pgweir.inject_memory", "Memory that is left.", NULL, &inject_memory,
							0, 0, PG_INT32_MAX, PGC_USERSET, GUC_NO_SHOW_ALL | GUC_NO_RESET_ALL,
							NULL, assign_inject_memory, NULL);
	DefineCustomIntVariable("pgweir.inject_at", "The step that is to fail.", NULL, &inject_at,
							0, 0, PG_INT32_MAX, PGC_USERSET,
							GUC_NO_SHOW_ALL | GUC_NO_RESET_ALL,
							NULL, assign_inject_at, show_inject_at);
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
