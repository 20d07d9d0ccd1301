/*
 * comma_locale.h - a locale that writes a decimal comma, made for the test where none is
 * installed.
 */
#ifndef COMMA_LOCALE_H
#define COMMA_LOCALE_H

#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* 1: LC_NUMERIC now has a comma; 0: localedef or its sources are missing. */
static inline int comma_locale_set(void)
{
    static const char *const installed[] = {"de_DE.UTF-8", "fr_FR.UTF-8", "de_DE"};
    char folder[] = "/tmp/polyhead-locale-XXXXXX", command[200];
    int made = 0;
    for (int i = 0; i < 3; i++)
        if (setlocale(LC_NUMERIC, installed[i])) return 1;
    if (!mkdtemp(folder)) return 0;
    snprintf(command, sizeof command,
             "localedef -i de_DE -f ISO-8859-1 %s/comma >/dev/null 2>&1", folder);
    if (system(command) == 0) {
        setenv("LOCPATH", folder, 1);
        made = setlocale(LC_NUMERIC, "comma") != NULL;
        unsetenv("LOCPATH");
    }
    snprintf(command, sizeof command, "rm -rf %s", folder);
    if (system(command) != 0) printf("    %s stays behind\n", folder);
    return made;
}

#endif
