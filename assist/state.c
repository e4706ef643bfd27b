/*
 * state.c
 *		What a session holds besides settings, asked of PostgreSQL.
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/table.h"
#include "access/xact.h"
#include "catalog/dependency.h"
#include "catalog/indexing.h"
#include "catalog/namespace.h"
#include "catalog/pg_depend.h"
#include "catalog/pg_namespace.h"
#include "commands/prepare.h"
#include "commands/tablecmds.h"
#include "executor/executor.h"
#include "nodes/execnodes.h"
#include "storage/lock.h"
#include "storage/lwlock.h"
#include "storage/proc.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/fmgrprotos.h"
#include "utils/portal.h"
#include "utils/rel.h"

#include "pgweir_assist.h"

static bool namespace_has_objects(Oid namespace);

static bool
is_advisory(const PROCLOCK *held)
{
	return held->tag.myLock->tag.locktag_lockmethodid == USER_LOCKMETHOD &&
		held->holdMask != 0;
}

static bool
partition_has_advisory(int partition)
{
#if PG_VERSION_NUM >= 160000
	dlist_iter	at;

	dlist_foreach(at, &MyProc->myProcLocks[partition])
	{
		if (is_advisory(dlist_container(PROCLOCK, procLink, at.cur)))
			return true;
	}
#else
	SHM_QUEUE  *locks = &MyProc->myProcLocks[partition];
	PROCLOCK   *held;

	for (held = (PROCLOCK *) SHMQueueNext(locks, locks, offsetof(PROCLOCK, procLink));
		 held != NULL;
		 held = (PROCLOCK *) SHMQueueNext(locks, &held->procLink, offsetof(PROCLOCK, procLink)))
	{
		if (is_advisory(held))
			return true;
	}
#endif
	return false;
}

static bool
partition_is_empty(int partition)
{
#if PG_VERSION_NUM >= 160000
	return dlist_is_empty(&MyProc->myProcLocks[partition]);
#else
	return SHMQueueEmpty(&MyProc->myProcLocks[partition]);
#endif
}

/*
 * Does this session hold session-level advisory locks?  Only between
 * transactions, when there are no others.
 *
 * Others add to our lists only when they move our fast-path locks there, of
 * which we have none: so an empty list may be passed by without its lock.
 */
bool
holds_advisory_locks(void)
{
	for (int i = 0; i < NUM_LOCK_PARTITIONS; i++)
	{
		LWLock	   *lock = LockHashPartitionLockByIndex(i);
		bool		found;

		if (partition_is_empty(i))
			continue;

		LWLockAcquire(lock, LW_SHARED);
		found = partition_has_advisory(i);
		LWLockRelease(lock);
		if (found)
			return true;
	}
	return false;
}

/*
 * Will there be temporary objects once this transaction has committed?  Called
 * just before that.
 */
bool
has_temp_objects_at_commit(void)
{
	Oid			namespace;
	Oid			toast_namespace;

	GetTempNamespaceState(&namespace, &toast_namespace);
	if (!OidIsValid(namespace) || !namespace_has_objects(namespace))
		return false;

	/*
	 * Some may be ON COMMIT DROP.  PostgreSQL is about to do this anyway, and
	 * to do it twice is harmless.
	 */
	PreCommit_on_commit_actions();
	CommandCounterIncrement();
	return namespace_has_objects(namespace);
}

/* Each object in a schema that is not built in depends on it. */
static bool
namespace_has_objects(Oid namespace)
{
	Relation	depend = table_open(DependRelationId, AccessShareLock);
	ScanKeyData key[2];
	SysScanDesc scan;
	bool		found;

	INJECT_ERROR();
	ScanKeyInit(&key[0], Anum_pg_depend_refclassid, BTEqualStrategyNumber, F_OIDEQ,
				ObjectIdGetDatum(NamespaceRelationId));
	ScanKeyInit(&key[1], Anum_pg_depend_refobjid, BTEqualStrategyNumber, F_OIDEQ,
				ObjectIdGetDatum(namespace));
	scan = systable_beginscan(depend, DependReferenceIndexId, true, NULL, 2, key);
	found = HeapTupleIsValid(systable_getnext(scan));
	systable_endscan(scan);
	table_close(depend, AccessShareLock);
	return found;
}

bool
prepared_statement_is_live(const char *name)
{
	PreparedStatement *statement = FetchPreparedStatement(name, false);

	/* The protocol's statements are in the same table. */
	return statement != NULL && statement->from_sql;
}

bool
held_cursor_is_live(const char *name)
{
	Portal		portal = GetPortalByName(name);

	return PortalIsValid(portal) && (portal->cursorOptions & CURSOR_OPT_HOLD) != 0;
}

/*
 * Visits each channel that is listened on, by calling the function of SQL as
 * the executor does; it reads nothing but this session's own list.  Returns
 * how many.
 *
 * May raise an error; must not be called in the commit of a transaction.
 */
int
listening_channels_each(void (*visit) (const char *channel))
{
	MemoryContext context = AllocSetContextCreate(CurrentMemoryContext, "pgweir_assist channels",
												  ALLOCSET_SMALL_SIZES);
	MemoryContext before = MemoryContextSwitchTo(context);
	ExprContext *econtext = CreateStandaloneExprContext();
	ReturnSetInfo result = {.type = T_ReturnSetInfo};
	int			count = 0;
	FmgrInfo	function;

	LOCAL_FCINFO(fcinfo, 0);

	fmgr_info(F_PG_LISTENING_CHANNELS, &function);
	InitFunctionCallInfoData(*fcinfo, &function, 0, InvalidOid, NULL, (Node *) &result);
	result.econtext = econtext;
	result.allowedModes = SFRM_ValuePerCall;
	result.returnMode = SFRM_ValuePerCall;
	for (;;)
	{
		Datum		channel;

		INJECT_ERROR();
		fcinfo->isnull = false;
		result.isDone = ExprSingleResult;
		channel = FunctionCallInvoke(fcinfo);
		if (result.isDone != ExprMultipleResult)
			break;
		visit(TextDatumGetCString(channel));
		count++;
	}
	FreeExprContext(econtext, true);
	MemoryContextSwitchTo(before);
	MemoryContextDelete(context);
	return count;
}
