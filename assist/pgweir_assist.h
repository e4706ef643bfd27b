/*
 * pgweir_assist.h
 *		What the files of pgweir_assist know of each other.
 */
#ifndef PGWEIR_ASSIST_H
#define PGWEIR_ASSIST_H

#include "nodes/nodes.h"
#include "nodes/parsenodes.h"

/* The variable that is reported, and the version of its format. */
#define REPORT_NAME "pgweir.session_state"
#define REPORT_VERSION '1'

/* No report is longer, its closing zero included. */
#define REPORT_BYTES_MAX 8192

/* At most so many names of prepared statements, and of cursors, are remembered. */
#define NAMES_MAX 128

/* With at most so many, they are looked up after every transaction. */
#define NAMES_ALWAYS_VERIFIED_MAX 32

/*
 * A build for tests can let each step fail that could fail in earnest: INJECT()
 * is true if this one shall.
 */
extern void inject_define(void);
#ifdef PGWEIR_INJECT
extern bool inject_failure(void);
#define INJECT() inject_failure()
#else
#define INJECT() false
#endif

/* The same as an error. */
#define INJECT_ERROR() \
	do { \
		if (INJECT()) \
			ereport(ERROR, (errmsg("injected failure"))); \
	} while (0)

/* names.c: names that were seen in statements, and what became of them */
typedef struct NameList
{
	int			count;
	bool		overflowed;		/* there were more than fit */
	char		names[NAMES_MAX][NAMEDATALEN];
} NameList;

typedef bool (*NameIsLive) (const char *name);

extern void names_add(NameList *list, const char *name, NameIsLive is_live);
extern void names_keep_live(NameList *list, NameIsLive is_live);
extern void names_clear(NameList *list);

/* settings.c: walks what this session has set */
typedef void (*SettingVisitor) (const char *name, const char *value, bool privileged);

extern const char *settings_self_test(const char *known_name, const bool *known_variable);
extern void settings_watch_seed(void (*seeded) (void));
extern bool settings_each_of_session(SettingVisitor visit);

/* state.c: what a session holds besides settings */
extern bool holds_advisory_locks(void);
extern bool has_temp_objects_at_commit(void);
extern bool prepared_statement_is_live(const char *name);
extern bool held_cursor_is_live(const char *name);
extern int	listening_channels_each(void (*visit) (const char *channel));

/* report.c: the text that is reported */
extern void report_begin(void);
extern void report_item(char kind);
extern void report_named(char kind, const char *name);
extern void report_setting(char kind, const char *name, const char *value);
extern void report_settings_end(void);
extern const char *report_end(bool complete);

#endif							/* PGWEIR_ASSIST_H */
