#include "client/cli/cli.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

struct cli_table {
    int columns;
    size_t cells_count;
    size_t cells_capacity;
    char **cells; /* titles first */
};

void cli_table_add(struct cli_table *table, const char *const *cells)
{
    size_t needed = table->cells_count + (size_t)table->columns;
    if (needed > table->cells_capacity) {
        size_t capacity = needed * 2;
        char **grown = realloc(table->cells, capacity * sizeof *grown);
        if (!grown)
            abort();
        table->cells = grown;
        table->cells_capacity = capacity;
    }
    for (int i = 0; i < table->columns; i++) {
        char *copy = strdup(cells[i]);
        if (!copy)
            abort();
        table->cells[table->cells_count++] = copy;
    }
}

struct cli_table *cli_table_new(int columns, const char *const *titles)
{
    struct cli_table *table = calloc(1, sizeof *table);
    if (!table)
        abort();
    table->columns = columns;
    cli_table_add(table, titles);
    return table;
}

void cli_table_print(struct cli_table *table, FILE *out)
{
    for (size_t i = 0; i < table->cells_count; i++) {
        int column = (int)(i % (size_t)table->columns);
        bool last = column == table->columns - 1;
        size_t width = 0;
        for (size_t j = (size_t)column; j < table->cells_count && !last; j += (size_t)table->columns)
            if (strlen(table->cells[j]) > width)
                width = strlen(table->cells[j]);
        fprintf(out, "%-*s%s", (int)width, table->cells[i], last ? "\n" : "  ");
    }
}

void cli_table_free(struct cli_table *table)
{
    if (!table)
        return;
    for (size_t i = 0; i < table->cells_count; i++)
        free(table->cells[i]);
    free(table->cells);
    free(table);
}

/* ---- ids ---------------------------------------------------------------------------------------------- */

void cli_join_ids(const int32_t *ids, size_t count, char *text, size_t room)
{
    size_t n = 0;
    snprintf(text, room, "-");
    for (size_t i = 0; i < count && n + 12 < room; i++)
        n += (size_t)snprintf(text + n, room - n, "%s%" PRId32, i ? "," : "", ids[i]);
}

json_t *cli_ids_json(const int32_t *ids, size_t count)
{
    json_t *list = json_array();
    for (size_t i = 0; i < count; i++)
        json_array_append_new(list, json_integer(ids[i]));
    return list;
}
