/*
 * pgweir_assist.c
 *		Tells pgweir, just before ReadyForQuery, what a session holds.
 *
 * The report is the value of a variable that PostgreSQL reports to the client
 * whenever it changes, as it does with TimeZone.  It comes about like this:
 *
 * 1. Hooks notice that a statement may change what the session holds.  They
 *	  only set flags: whether it stays is open until the transaction is over.
 * 2. Just before a commit, where an error is still an ordinary one, temporary
 *	  objects are looked up in the catalog; and if anything may have changed,
 *	  the variable is marked as changed.
 * 3. PostgreSQL comes to report changed variables, just before ReadyForQuery and
 *	  outside of any transaction, and asks ours for its value.  Only now it is
 *	  made, of what has become of the transaction.  An error here is caught, and
 *	  told by `x`.
 *
 * So in the commit itself, where an error would take the whole cluster down,
 * there is nothing to do but to assign a flag.
 */
#include "postgres.h"

#include "access/transam.h"
#include "access/xact.h"
#include "catalog/namespace.h"
#include "catalog/objectaccess.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "nodes/parsenodes.h"
#include "storage/latch.h"
#include "tcop/dest.h"
#include "tcop/utility.h"
#include "utils/fmgroids.h"
#include "utils/guc.h"
#include "utils/memutils.h"

#include "pgweir_assist.h"

/* The versions that were tested. */
#ifndef PGWEIR_MAJOR_MIN
#define PGWEIR_MAJOR_MIN 14
#endif
#ifndef PGWEIR_MAJOR_MAX
#define PGWEIR_MAJOR_MAX 18
#endif

#define UNTESTED_NAME "pgweir.assist_untested_version"

PG_MODULE_MAGIC;

extern PGDLLEXPORT void _PG_init(void);

static bool allow_untested_version;

/* Only there to be marked as changed: its value is made by show_report(). */
static char *report_variable;

/* The text that was made last. */
static const char *report = "1";

/* May the report differ from the last one? */
static bool is_stale = true;

/* Things that stay until the session ends. */
static bool seeded;
static bool library_loaded;

/* Was a LISTEN or UNLISTEN seen since there were no channels? */
static bool may_listen;

static NameList prepared;
static NameList cursors;

/* Temporary objects: after the last transaction, and after the one that ends. */
static bool has_temp;
static bool will_have_temp;

/* Has this transaction created or dropped anything? */
static bool catalog_changed;

static ProcessUtility_hook_type next_utility;
static object_access_hook_type next_object_access;

static const char *reason_to_stay_off(void);
static void assist_utility(PlannedStmt *planned, const char *source, bool read_only_tree,
						   ProcessUtilityContext context, ParamListInfo parameters,
						   QueryEnvironment *environment, DestReceiver *receiver,
						   QueryCompletion *completion);
static void assist_object_access(ObjectAccessType access, Oid class, Oid object, int sub_object,
								 void *argument);
static void transaction_event(XactEvent event, void *argument);
static bool may_be_stale(void);
static bool mark_changed(int elevel);
static void mark_changed_or_end_session(void);
static void random_numbers_begin_anew(void);
static const char *show_report(void);

void
_PG_init(void)
{
	const char *reason;

	/* Others than clients' own processes have nothing to report, and nobody to report it to. */
	if (!process_shared_preload_libraries_in_progress &&
		(MyBackendType != B_BACKEND || MyProcPort == NULL || whereToSendOutput != DestRemote))
		return;

	reason = reason_to_stay_off();
	if (reason != NULL)
	{
		ereport(WARNING,
				(errmsg("pgweir_assist is off: %s", reason),
				 errhint("pgweir finds out by queries what a session holds.")));
		return;
	}

	DefineCustomStringVariable(REPORT_NAME, "What this session holds, for pgweir.", NULL,
							   &report_variable, "", PGC_INTERNAL,
							   GUC_REPORT | GUC_NO_SHOW_ALL | GUC_NO_RESET_ALL |
							   GUC_NOT_IN_SAMPLE | GUC_DISALLOW_IN_FILE | GUC_SUPERUSER_ONLY,
							   NULL, NULL, show_report);
	next_utility = ProcessUtility_hook ? ProcessUtility_hook : standard_ProcessUtility;
	ProcessUtility_hook = assist_utility;
	next_object_access = object_access_hook;
	object_access_hook = assist_object_access;
	RegisterXactCallback(transaction_event, NULL);
	settings_watch_seed(random_numbers_begin_anew);

	/* PostgreSQL 14 has reported all variables before it comes here. */
	mark_changed(ERROR);
}

/* NULL if all is as this was made for. */
static const char *
reason_to_stay_off(void)
{
	int			major = PG_VERSION_NUM / 10000;

	if (process_shared_preload_libraries_in_progress)
		return "it belongs in session_preload_libraries, not in shared_preload_libraries";
	/* Libraries are preloaded before the first transaction of the client's. */
	if (IsNormalProcessingMode() && IsTransactionState())
		return "it was loaded in the middle of a session";

	inject_define();
	DefineCustomBoolVariable(UNTESTED_NAME,
							 "Lets pgweir_assist work on a PostgreSQL that it was not tested on.",
							 NULL, &allow_untested_version, false, PGC_SUSET, 0,
							 NULL, NULL, NULL);
	if ((major < PGWEIR_MAJOR_MIN || major > PGWEIR_MAJOR_MAX) && !allow_untested_version)
		return "it was not tested on this version of PostgreSQL; "
			UNTESTED_NAME " = on makes it try";
	return settings_self_test(UNTESTED_NAME, &allow_untested_version);
}

/* ----------
 * Hooks: what may change
 * ----------
 */

/*
 * A name is noted before its statement is run, since what comes after that may
 * fail: whether it came to be is asked later.
 */
static void
before_utility(Node *statement)
{
	switch (nodeTag(statement))
	{
		case T_TransactionStmt:
			/* The end of a failed transaction has no event; and it may have been marked too early. */
			if (is_stale && !IsTransactionState())
				mark_changed_or_end_session();
			if (((TransactionStmt *) statement)->kind == TRANS_STMT_COMMIT_PREPARED)
				catalog_changed = true;
			return;

		case T_PrepareStmt:
			names_add(&prepared, ((PrepareStmt *) statement)->name, prepared_statement_is_live);
			break;

		case T_DeclareCursorStmt:
			if (((DeclareCursorStmt *) statement)->options & CURSOR_OPT_HOLD)
				names_add(&cursors, ((DeclareCursorStmt *) statement)->portalname,
						  held_cursor_is_live);
			break;

		case T_ListenStmt:
		case T_UnlistenStmt:
			may_listen = true;
			break;

		default:
			break;
	}
	is_stale = true;
}

/* Which of the things of this session are gone if a statement succeeds? */
typedef enum Clears
{
	CLEARS_NOTHING,
	CLEARS_PREPARED,
	CLEARS_CURSORS,
	CLEARS_BOTH
} Clears;

static Clears
cleared_by(Node *statement)
{
	switch (nodeTag(statement))
	{
		case T_DeallocateStmt:
			return ((DeallocateStmt *) statement)->name == NULL ? CLEARS_PREPARED : CLEARS_NOTHING;
		case T_ClosePortalStmt:
			return ((ClosePortalStmt *) statement)->portalname == NULL ? CLEARS_CURSORS : CLEARS_NOTHING;
		case T_DiscardStmt:
			return ((DiscardStmt *) statement)->target == DISCARD_ALL ? CLEARS_BOTH : CLEARS_NOTHING;
		default:
			return CLEARS_NOTHING;
	}
}

static void
assist_utility(PlannedStmt *planned, const char *source, bool read_only_tree,
			   ProcessUtilityContext context, ParamListInfo parameters,
			   QueryEnvironment *environment, DestReceiver *receiver,
			   QueryCompletion *completion)
{
	/* The statement may be gone once it has run. */
	Clears		clears = cleared_by(planned->utilityStmt);
	bool		loads = IsA(planned->utilityStmt, LoadStmt);

	before_utility(planned->utilityStmt);
	next_utility(planned, source, read_only_tree, context, parameters, environment, receiver,
				 completion);
	if (loads)
		library_loaded = true;
	if (clears == CLEARS_PREPARED || clears == CLEARS_BOTH)
		names_clear(&prepared);
	if (clears == CLEARS_CURSORS || clears == CLEARS_BOTH)
		names_clear(&cursors);
}

/*
 * May this function change what the session holds, past all statements?  Any
 * may that is not built in, if it is written in C.
 */
static bool
is_opaque(Oid function)
{
	switch (function)
	{
		case F_SET_CONFIG:
		case F_SETSEED:
		case F_PG_ADVISORY_LOCK_INT8:
		case F_PG_ADVISORY_LOCK_INT4_INT4:
		case F_PG_ADVISORY_LOCK_SHARED_INT8:
		case F_PG_ADVISORY_LOCK_SHARED_INT4_INT4:
		case F_PG_TRY_ADVISORY_LOCK_INT8:
		case F_PG_TRY_ADVISORY_LOCK_INT4_INT4:
		case F_PG_TRY_ADVISORY_LOCK_SHARED_INT8:
		case F_PG_TRY_ADVISORY_LOCK_SHARED_INT4_INT4:
		case F_PG_ADVISORY_UNLOCK_INT8:
		case F_PG_ADVISORY_UNLOCK_INT4_INT4:
		case F_PG_ADVISORY_UNLOCK_SHARED_INT8:
		case F_PG_ADVISORY_UNLOCK_SHARED_INT4_INT4:
		case F_PG_ADVISORY_UNLOCK_ALL:
			return true;

		default:
			return function >= FirstGenbkiObjectId;
	}
}

static void
assist_object_access(ObjectAccessType access, Oid class, Oid object, int sub_object,
					 void *argument)
{
	if (next_object_access)
		next_object_access(access, class, object, sub_object, argument);

	switch (access)
	{
		case OAT_FUNCTION_EXECUTE:
			if (is_opaque(object))
				is_stale = true;
			if (object == F_SETSEED)
				random_numbers_begin_anew();
			break;

		case OAT_POST_CREATE:
		case OAT_DROP:
			catalog_changed = true;
			break;

		default:
			break;
	}
}

/* ----------
 * The end of a transaction
 * ----------
 */

static void
transaction_event(XactEvent event, void *argument)
{
	switch (event)
	{
		case XACT_EVENT_PRE_COMMIT:
		case XACT_EVENT_PRE_PREPARE:
			if (unlikely(catalog_changed))
				will_have_temp = has_temp_objects_at_commit();
			if (may_be_stale())
				mark_changed(ERROR);
			break;

		case XACT_EVENT_COMMIT:
			has_temp = will_have_temp;
			catalog_changed = false;
			break;

		case XACT_EVENT_PREPARE:
			/* What it dropped is still there, until COMMIT PREPARED. */
			will_have_temp = has_temp;
			catalog_changed = false;
			break;

		case XACT_EVENT_ABORT:
			will_have_temp = has_temp;
			catalog_changed = false;
			if (may_be_stale())
				mark_changed_or_end_session();
			break;

		default:
			break;
	}
}

/* May the report be another one after this transaction? */
static bool
may_be_stale(void)
{
	if (will_have_temp != has_temp)
		is_stale = true;
	/* The protocol's Close drops a prepared statement or a cursor unseen. */
	else if (prepared.count + cursors.count > 0 &&
			 prepared.count + cursors.count <= NAMES_ALWAYS_VERIFIED_MAX)
		is_stale = true;
	return is_stale;
}

/*
 * Makes PostgreSQL come for the report before the next ReadyForQuery.  False if
 * it can't be done, and no error is to be raised.
 *
 * The value does not matter.  Its source is no lower than the default's, so it
 * is assigned for good: no transaction takes it back, and nothing is stacked.
 * What can fail is a copy of the value.
 */
static bool
mark_changed(int elevel)
{
	if (INJECT())
	{
		ereport(elevel, (errmsg("injected failure")));
		return false;
	}
	return set_config_option(REPORT_NAME, "", PGC_INTERNAL, PGC_S_OVERRIDE, GUC_ACTION_SAVE,
							 true, elevel, false) > 0;
}

/*
 * The same where no error is welcome: in an abort.
 *
 * If there is not even memory for an empty string, pgweir would take the last
 * report for the current one, and lend the session to somebody else: so it has
 * to end, at the next check for interrupts.
 */
static void
mark_changed_or_end_session(void)
{
	if (mark_changed(DEBUG5))
		return;
	ProcDiePending = true;
	InterruptPending = true;
	SetLatch(MyLatch);
}

/* They stay so even if the transaction is rolled back. */
static void
random_numbers_begin_anew(void)
{
	seeded = true;
	is_stale = true;
}

/* ----------
 * The report
 * ----------
 */

static void
visit_setting(const char *name, const char *value, bool privileged)
{
	if (strcmp(name, "seed") != 0)
		report_setting(privileged ? 's' : 'g', name, value);
}

static void
visit_channel(const char *channel)
{
	report_named('c', channel);
}

/* Writes all items that have names; false if some can't be told. */
static bool
write_named_items(void)
{
	bool		complete;

	complete = settings_each_of_session(visit_setting);
	if (complete)
		report_settings_end();
	if (may_listen)
		may_listen = listening_channels_each(visit_channel) > 0;
	names_keep_live(&prepared, prepared_statement_is_live);
	for (int i = 0; i < prepared.count; i++)
		report_named('p', prepared.names[i]);
	return complete && !prepared.overflowed && !cursors.overflowed;
}

/*
 * Makes the report.  We are between transactions, on the way to ReadyForQuery.
 */
static void
make_report(void)
{
	volatile bool complete = false;
	uint32		holdoff = InterruptHoldoffCount;
	MemoryContext context = CurrentMemoryContext;

	report_begin();
	PG_TRY();
	{
		HOLD_INTERRUPTS();
		complete = write_named_items();
		RESUME_INTERRUPTS();
	}
	PG_CATCH();
	{
		MemoryContextSwitchTo(context);
		FlushErrorState();
		InterruptHoldoffCount = holdoff;
	}
	PG_END_TRY();

	names_keep_live(&cursors, held_cursor_is_live);
	if (has_temp)
		report_item('t');
	if (holds_advisory_locks())
		report_item('a');
	if (cursors.count > 0)
		report_item('h');
	if (seeded)
		report_item('r');
	if (library_loaded)
		report_item('l');
	report = report_end(complete);

	/* What could not be told is tried again after the next transaction. */
	is_stale = !complete;
}

/*
 * PostgreSQL asks for the variable's value: to report it, or for somebody who
 * wants to see it.  In a transaction, the last report is still what holds.
 */
static const char *
show_report(void)
{
	if (is_stale && !IsTransactionOrTransactionBlock())
		make_report();
	return report;
}
