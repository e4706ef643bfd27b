/*
 * settings.c
 *		What this session has set, as PostgreSQL itself keeps it.
 *
 * PostgreSQL 14 and 15 hand out the array of all variables.  From 16 on, that
 * array is made anew and sorted at each request, which costs more than a
 * transaction; but each variable that differs from its default is linked into
 * one circle (nondef_link in guc_tables.h), together with the list's head, the
 * one node that belongs to no variable.  The self-test finds the head, and
 * proves that the circle is what we think it is.
 */
#include "postgres.h"

#include "commands/trigger.h"
#include "common/shortest_dec.h"
#include "lib/ilist.h"
#include "miscadmin.h"
#include "optimizer/cost.h"
#include "optimizer/optimizer.h"
#include "utils/guc.h"
#include "utils/guc_tables.h"

#include "pgweir_assist.h"

/* A walk that has not ended after so many variables is lost. */
#define VARIABLES_MAX 100000

#if PG_VERSION_NUM >= 160000
static dlist_node *nondefault_head;
#endif

static struct config_real *seed_variable;
static GucRealAssignHook next_assign_seed;
static void (*report_seed) (void);

static void assign_seed(double value, void *extra);
static const char *find_nondefault_head(struct config_generic **variables, int count);
static bool is_of_session(struct config_generic *variable);
static const char *value_of(struct config_generic *variable, char *room);

/*
 * Is the layout of variables the one that this was compiled for?  NULL, or
 * what is wrong.  The known variable is one of ours.
 */
const char *
settings_self_test(const char *known_name, const bool *known_variable)
{
	struct config_generic **variables;
	int			count;
	int			known = 0;
	const char *problem;

	if (INJECT())
		return "injected failure";
#if PG_VERSION_NUM >= 160000
	variables = get_guc_variables(&count);
#else
	variables = get_guc_variables();
	count = GetNumConfigOptions();
#endif

	for (int i = 0; i < count; i++)
	{
		struct config_generic *variable = variables[i];
		const char *name = variable->name;

		if (strcmp(name, known_name) == 0)
			known += variable->vartype == PGC_BOOL &&
				((struct config_bool *) variable)->variable == known_variable;
		else if (strcmp(name, "enable_seqscan") == 0)
			known += variable->vartype == PGC_BOOL &&
				((struct config_bool *) variable)->variable == &enable_seqscan;
		else if (strcmp(name, "work_mem") == 0)
			known += variable->vartype == PGC_INT &&
				((struct config_int *) variable)->variable == &work_mem;
		else if (strcmp(name, "seq_page_cost") == 0)
			known += variable->vartype == PGC_REAL &&
				((struct config_real *) variable)->variable == &seq_page_cost;
		else if (strcmp(name, "seed") == 0 && variable->vartype == PGC_REAL &&
				 ((struct config_real *) variable)->assign_hook != NULL)
		{
			seed_variable = (struct config_real *) variable;
			known++;
		}
		else if (strcmp(name, "session_replication_role") == 0)
			known += variable->vartype == PGC_ENUM &&
				((struct config_enum *) variable)->variable == &SessionReplicationRole;
		else if (strcmp(name, "server_version") == 0)
			known += variable->vartype == PGC_STRING &&
				strncmp(*((struct config_string *) variable)->variable, PG_MAJORVERSION,
						strlen(PG_MAJORVERSION)) == 0;	/* it may be upgraded since */
	}
	problem = known == 7 ? find_nondefault_head(variables, count) :
		"variables are not where they should be";

#if PG_VERSION_NUM >= 160000
	pfree(variables);
#endif
	return problem;
}

/*
 * Calls the function each time random numbers begin anew by the parameter seed,
 * in whichever way it was set.  The self-test has found the variable.
 */
void
settings_watch_seed(void (*seeded) (void))
{
	report_seed = seeded;
	next_assign_seed = seed_variable->assign_hook;
	seed_variable->assign_hook = assign_seed;
}

static void
assign_seed(double value, void *extra)
{
	/* PostgreSQL takes the seed at the first assignment only, not when a value comes back. */
	bool		seeds = extra != NULL && *((int *) extra) != 0;

	next_assign_seed(value, extra);
	if (seeds)
		report_seed();
}

#if PG_VERSION_NUM >= 160000

static bool
links_a_variable(dlist_node *node, struct config_generic **variables, int count)
{
	for (int i = 0; i < count; i++)
	{
		if (node == &variables[i]->nondef_link)
			return variables[i]->source != PGC_S_DEFAULT;
	}
	return false;
}

static const char *
find_nondefault_head(struct config_generic **variables, int count)
{
	dlist_node *start = NULL;
	dlist_node *node;
	dlist_node *head = NULL;
	int			expected = 0;
	int			found = 0;

	for (int i = 0; i < count; i++)
	{
		if (variables[i]->source == PGC_S_DEFAULT)
			continue;
		start = &variables[i]->nondef_link;
		expected++;
	}
	if (start == NULL)
		return "no variable differs from its default";

	node = start;
	do
	{
		if (links_a_variable(node, variables, count))
			found++;
		else if (head == NULL)
			head = node;
		else
			return "the list of variables that differ from their default has two heads";
		node = node->next;
	} while (node != start && node != NULL && found <= expected);

	if (node != start || found != expected || head == NULL)
		return "the list of variables that differ from their default is another";
	nondefault_head = head;
	return NULL;
}

#else

static const char *
find_nondefault_head(struct config_generic **variables, int count)
{
	return NULL;
}

#endif

/*
 * Visits each variable that has a value of this session.  False if not all of
 * them could be visited.
 *
 * May raise an error; must not be called in the commit of a transaction.
 */
bool
settings_each_of_session(SettingVisitor visit)
{
	/* A double needs most room. */
	char		room[DOUBLE_SHORTEST_DECIMAL_LEN];
#if PG_VERSION_NUM >= 160000
	int			visited = 0;
	dlist_node *node;
#else
	struct config_generic **variables = get_guc_variables();
	int			count = GetNumConfigOptions();
#endif

	INJECT_ERROR();
#if PG_VERSION_NUM >= 160000
	for (node = nondefault_head->next; node != nondefault_head; node = node->next)
	{
		struct config_generic *variable =
			dlist_container(struct config_generic, nondef_link, node);

		if (++visited > VARIABLES_MAX)
			return false;
		if (is_of_session(variable))
			visit(variable->name, value_of(variable, room), variable->context == PGC_SUSET);
	}
#else
	for (int i = 0; i < count; i++)
	{
		if (is_of_session(variables[i]))
			visit(variables[i]->name, value_of(variables[i], room),
				  variables[i]->context == PGC_SUSET);
	}
#endif
	return true;
}

/*
 * Is this a variable whose value belongs to the session?  Those of the current
 * transaction keep a source, but each transaction begins with defaults.
 */
static bool
is_of_session(struct config_generic *variable)
{
	if (likely(variable->source != PGC_S_SESSION))
		return false;
	INJECT_ERROR();
	return strncmp(variable->name, "transaction_", strlen("transaction_")) != 0 ||
		(strcmp(variable->name, "transaction_isolation") != 0 &&
		 strcmp(variable->name, "transaction_read_only") != 0 &&
		 strcmp(variable->name, "transaction_deferrable") != 0);
}

/*
 * The value in a form that set_config() reads back to exactly the same value:
 * numbers are in the variable's base unit.
 */
static const char *
value_of(struct config_generic *variable, char *room)
{
	switch (variable->vartype)
	{
		case PGC_BOOL:
			return *((struct config_bool *) variable)->variable ? "on" : "off";

		case PGC_INT:
			snprintf(room, DOUBLE_SHORTEST_DECIMAL_LEN, "%d",
					 *((struct config_int *) variable)->variable);
			return room;

		case PGC_REAL:
			double_to_shortest_decimal_buf(*((struct config_real *) variable)->variable, room);
			return room;

		case PGC_STRING:
			{
				struct config_string *string = (struct config_string *) variable;
				const char *value = string->show_hook ? string->show_hook() : *string->variable;

				return value ? value : "";
			}

		case PGC_ENUM:
			return config_enum_lookup_by_value((struct config_enum *) variable,
											   *((struct config_enum *) variable)->variable);
	}
	return "";
}
