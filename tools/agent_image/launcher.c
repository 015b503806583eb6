/* Starts the Python of the agent's folder with the folder's own dynamic loader and libraries, whatever the image has.
 *
 * Statically linked, so it runs where there is no libc, or another one (musl). It finds the folder by its own path:
 * FOLDER/bin/NAME. As `holdfast` it runs Holdfast, as `holdfast-copy` it copies the folder, else it is Python.
 *
 * Variables of the training that Python or the loader would obey (PYTHON*, LD_*, GLIBC_TUNABLES, LOCPATH, GCONV_PATH)
 * are renamed to HOLDFAST_OUTSIDE_*; lib/python3.11/sitecustomize.py restores them for what the agent starts.
 */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define OUTSIDE "HOLDFAST_OUTSIDE_"
#define FAILED 126

static const char *const HIDDEN[] = {"GLIBC_TUNABLES=", "LOCPATH=", "GCONV_PATH=", NULL};
static char *const ADDED[] = {"PYTHONSAFEPATH=1", "PYTHONNOUSERSITE=1", "PYTHONDONTWRITEBYTECODE=1", NULL};

static int starts(const char *text, const char *with) { return strncmp(text, with, strlen(with)) == 0; }

static int is_hidden(const char *variable) {
    if (starts(variable, "PYTHON") || starts(variable, "LD_")) return 1;
    for (int i = 0; HIDDEN[i]; i++)
        if (starts(variable, HIDDEN[i])) return 1;
    return 0;
}

static char *joined(const char *first, const char *second) {
    char *text = malloc(strlen(first) + strlen(second) + 1);
    if (!text) {
        perror("holdfast: no memory");
        exit(FAILED);
    }
    return strcat(strcpy(text, first), second);
}

static void cut_last(char *path) {
    char *slash = strrchr(path, '/');
    if (slash) *slash = '\0';
}

static char **environment(char **given) {
    size_t count = 0, used = 0;
    while (given[count]) count++;
    char **made = calloc(count + sizeof ADDED / sizeof *ADDED, sizeof *made);
    if (!made) exit(FAILED);
    for (size_t i = 0; i < count; i++) made[used++] = is_hidden(given[i]) ? joined(OUTSIDE, given[i]) : given[i];
    for (int i = 0; ADDED[i]; i++) made[used++] = ADDED[i];
    return made;
}

int main(int argc, char **argv, char **given) {
    char root[PATH_MAX];
    ssize_t length = readlink("/proc/self/exe", root, sizeof root - 1);
    if (length < 0) {
        fprintf(stderr, "holdfast: /proc is not mounted, so the agent cannot find its folder\n");
        return FAILED;
    }
    root[length] = '\0';
    cut_last(root);
    cut_last(root);
    const char *slash = argc ? strrchr(argv[0], '/') : NULL;
    const char *name = !argc ? "" : slash ? slash + 1 : argv[0];

    char **words = calloc(argc + 16, sizeof *words);
    if (!words) return FAILED;
    int count = 0;
    char *loader = joined(root, "/lib/ld.so");
    words[count++] = loader;
    words[count++] = "--inhibit-cache";
    words[count++] = "--library-path";
    words[count++] = joined(root, "/lib");
    words[count++] = "--argv0";
    words[count++] = joined(root, "/bin/python3");
    words[count++] = joined(root, "/lib/python");
    if (strcmp(name, "holdfast") == 0) {
        words[count++] = "-I";
        words[count++] = "-m";
        words[count++] = "holdfast";
    } else if (strcmp(name, "holdfast-copy") == 0) {
        words[count++] = "-I";
        words[count++] = "-S";
        words[count++] = joined(root, "/lib/copy_folder.py");
    }
    for (int i = 1; i < argc; i++) words[count++] = argv[i];
    execve(loader, words, environment(given));
    fprintf(stderr, "holdfast: cannot start %s: ", loader);
    perror("");
    return FAILED;
}
