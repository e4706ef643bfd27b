/*
 * report.c
 *		The text of a report, in memory of its own.
 *
 * Items are separated by `;`, the first is the format's version.  An item is
 * a letter and what belongs to it:
 *
 *	g<name>=<value>	a setting of this session
 *	s<name>=<value>	one that only superusers make, or who was given the right
 *	p<name>			a statement prepared by SQL
 *	c<channel>		a channel that is listened on
 *	t	there are temporary objects
 *	a	session-level advisory locks are held
 *	h	there are cursors WITH HOLD
 *	r	the seed of random() was set
 *	l	a library was loaded by LOAD
 *	x	there is more, or it can't be told: ask by SQL
 *
 * In names and values each byte outside 0x21..0x7e, and each of `\`, `;` and
 * `=`, is written as `\` and three octal digits.  So a report is ASCII, and
 * means the same under any client_encoding.
 */
#include "postgres.h"

#include "pgweir_assist.h"

/* Room for all items without a name, `x`, and the closing zero. */
#define ITEMS_BYTES_MAX 32

static char buffer[REPORT_BYTES_MAX];
static int	length;

/* Kinds of the items without a name; they always fit. */
static char items[ITEMS_BYTES_MAX / 2];
static int	item_count;

/* Did all items with names fit? */
static bool fits;

static void append_byte(char byte);
static void append_escaped(const char *bytes);
static void begin_item(char kind);

void
report_begin(void)
{
	item_count = 0;
	length = 0;
	fits = true;
	append_byte(REPORT_VERSION);
}

/* An item without a name. */
void
report_item(char kind)
{
	Assert(item_count < lengthof(items));
	items[item_count++] = kind;
}

void
report_named(char kind, const char *name)
{
	begin_item(kind);
	append_escaped(name);
}

void
report_setting(char kind, const char *name, const char *value)
{
	begin_item(kind);
	append_escaped(name);
	append_byte('=');
	append_escaped(value);
}

/*
 * The finished text, valid until the next report begins.  What did not fit, or
 * is not complete, is told by `x` instead of the items with names.
 */
const char *
report_end(bool complete)
{
	if (!fits || !complete)
	{
		length = 1;
		report_item('x');
	}
	for (int i = 0; i < item_count; i++)
	{
		buffer[length++] = ';';
		buffer[length++] = items[i];
	}
	buffer[length] = '\0';
	return buffer;
}

static void
begin_item(char kind)
{
	append_byte(';');
	append_byte(kind);
}

static void
append_byte(char byte)
{
	if (length >= REPORT_BYTES_MAX - ITEMS_BYTES_MAX)
		fits = false;
	else
		buffer[length++] = byte;
}

static void
append_escaped(const char *bytes)
{
	for (const unsigned char *at = (const unsigned char *) bytes; *at && fits; at++)
	{
		if (*at > 0x20 && *at < 0x7f && *at != '\\' && *at != ';' && *at != '=')
		{
			append_byte(*at);
			continue;
		}
		append_byte('\\');
		append_byte('0' + (*at >> 6));
		append_byte('0' + ((*at >> 3) & 7));
		append_byte('0' + (*at & 7));
	}
}
