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
 *	o	there is more than fits: ask by SQL.  Only custom parameters, which
 *		nothing in SQL lists, are told, by their names:
 *	n<name>			one of them
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

/* A text that is being made. */
typedef struct Text
{
	int			length;
	bool		fits;			/* nothing of it was left out */
	char		bytes[REPORT_BYTES_MAX];
} Text;

/* All items with names, and the names of custom parameters only. */
static Text whole;
static Text customs;

/* Kinds of the items without a name; they always fit. */
static char items[ITEMS_BYTES_MAX / 2];
static int	item_count;

/* All settings were told. */
static bool has_settings;

static void begin(Text *text);
static void begin_item(Text *text, char kind);
static void append_byte(Text *text, char byte);
static void append_escaped(Text *text, const char *bytes);

void
report_begin(void)
{
	item_count = 0;
	has_settings = false;
	begin(&whole);
	begin(&customs);
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
	begin_item(&whole, kind);
	append_escaped(&whole, name);
}

void
report_setting(char kind, const char *name, const char *value)
{
	begin_item(&whole, kind);
	append_escaped(&whole, name);
	append_byte(&whole, '=');
	append_escaped(&whole, value);
	if (strchr(name, '.') != NULL)
	{
		begin_item(&customs, 'n');
		append_escaped(&customs, name);
	}
}

/* There are no more settings than those that were told. */
void
report_settings_end(void)
{
	has_settings = true;
}

/*
 * The finished text, valid until the next report begins.  What did not fit, or
 * is not complete, is told by `o` or `x` instead of the items with names.
 */
const char *
report_end(bool complete)
{
	Text	   *text = &whole;

	if (!whole.fits || !complete)
	{
		bool		is_known = has_settings && customs.fits;

		text = &customs;
		if (!is_known)
			begin(text);
		report_item(is_known ? 'o' : 'x');
	}
	for (int i = 0; i < item_count; i++)
	{
		text->bytes[text->length++] = ';';
		text->bytes[text->length++] = items[i];
	}
	text->bytes[text->length] = '\0';
	return text->bytes;
}

static void
begin(Text *text)
{
	text->length = 0;
	text->fits = true;
	append_byte(text, REPORT_VERSION);
}

static void
begin_item(Text *text, char kind)
{
	append_byte(text, ';');
	append_byte(text, kind);
}

static void
append_byte(Text *text, char byte)
{
	if (text->length >= REPORT_BYTES_MAX - ITEMS_BYTES_MAX)
		text->fits = false;
	else
		text->bytes[text->length++] = byte;
}

static void
append_escaped(Text *text, const char *bytes)
{
	for (const unsigned char *at = (const unsigned char *) bytes; *at && text->fits; at++)
	{
		if (*at > 0x20 && *at < 0x7f && *at != '\\' && *at != ';' && *at != '=')
		{
			append_byte(text, *at);
			continue;
		}
		append_byte(text, '\\');
		append_byte(text, '0' + (*at >> 6));
		append_byte(text, '0' + ((*at >> 3) & 7));
		append_byte(text, '0' + (*at & 7));
	}
}
