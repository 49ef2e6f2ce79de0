/* Stands in for NVIDIA's library: answers what the file named by FAKE_NVML says, one "key value" a
 * line, read anew at every call. "0.power 90000" is of GPU 0, "0.mig1.total 5" of its second MIG
 * device. A value such as !15 is returned as NVML's error 15; what is not there is not supported. */

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { OK = 0, NOT_SUPPORTED = 3, NOT_FOUND = 6, TOO_SMALL = 7, NO_DRIVER = 9, TIMEOUT = 10 };
enum { MOST = 8, WORD = 512 };

typedef struct { int gpu, mig; } Device;
typedef struct { unsigned pid; unsigned long long used; unsigned gi, ci; } Process;
typedef struct { unsigned long long total, free, used; } Memory;
typedef struct { unsigned version; unsigned long long total, reserved, free, used; } Memory2;
typedef struct { void *device; unsigned long long type, data; unsigned gi, ci; } Event;
typedef struct {
    uint32_t id, scope;
    int64_t time, latency;
    int type, ret;
    unsigned long long value;
} Field;

static Device gpus[MOST], migs[MOST][MOST];
static Device *listened[MOST];
static int delivered[MOST];

static int say(const char *key, char *word) {
    const char *path = getenv("FAKE_NVML");
    FILE *file = path ? fopen(path, "r") : NULL;
    char line[WORD];
    size_t length = strlen(key);
    int code = NOT_SUPPORTED;
    while (file && code == NOT_SUPPORTED && fgets(line, sizeof line, file)) {
        line[strcspn(line, "\n")] = 0;
        if (strncmp(line, key, length) || line[length] != ' ') continue;
        strcpy(word, line + length + 1);
        code = word[0] == '!' ? atoi(word + 1) : OK;
    }
    if (file) fclose(file);
    return code;
}

static int say_of(Device *device, const char *name, char *word) {
    char key[WORD];
    snprintf(key, sizeof key, "%d.lost", device->gpu);
    if (say(key, word) == OK) return 15;
    if (device->mig < 0) snprintf(key, sizeof key, "%d.%s", device->gpu, name);
    else snprintf(key, sizeof key, "%d.mig%d.%s", device->gpu, device->mig, name);
    return say(key, word);
}

static int number(Device *device, const char *name, unsigned long long *value) {
    char word[WORD];
    int code = say_of(device, name, word);
    if (code == OK) *value = strtoull(word, NULL, 0);
    return code;
}

static int small(Device *device, const char *name, unsigned *value) {
    unsigned long long wide = 0;
    int code = number(device, name, &wide);
    if (code == OK) *value = (unsigned)wide;
    return code;
}

static int text(Device *device, const char *name, char *buffer, unsigned size) {
    char word[WORD];
    int code = say_of(device, name, word);
    if (code == OK) snprintf(buffer, size, "%s", word);
    return code;
}

int nvmlInitWithFlags(unsigned flags) {
    char word[WORD];
    (void)flags;
    return say("count", word) == OK ? OK : NO_DRIVER;
}

int nvmlShutdown(void) { return OK; }

int nvmlDeviceGetCount_v2(unsigned *count) {
    char word[WORD];
    int code = say("count", word);
    *count = code == OK ? (unsigned)atoi(word) : 0;
    return code;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, Device **device) {
    char word[WORD];
    Device *gpu = &gpus[index];
    *gpu = (Device){(int)index, -1};
    int code = say_of(gpu, "handle", word);
    *device = gpu;
    return code == NOT_SUPPORTED ? OK : code;
}

int nvmlDeviceGetUUID(Device *d, char *b, unsigned n) { return text(d, "uuid", b, n); }
int nvmlDeviceGetName(Device *d, char *b, unsigned n) { return text(d, "name", b, n); }
int nvmlDeviceGetPowerUsage(Device *d, unsigned *v) { return small(d, "power", v); }
int nvmlDeviceGetEnforcedPowerLimit(Device *d, unsigned *v) { return small(d, "power_limit", v); }
int nvmlDeviceGetPcieReplayCounter(Device *d, unsigned *v) { return small(d, "replays", v); }

int nvmlDeviceGetTemperature(Device *d, unsigned sensor, unsigned *v) {
    (void)sensor;
    return small(d, "temperature", v);
}

int nvmlDeviceGetClockInfo(Device *d, unsigned kind, unsigned *v) {
    return small(d, kind == 1 ? "sm_clock" : "mem_clock", v);
}

int nvmlDeviceGetCurrentClocksEventReasons(Device *d, unsigned long long *v) {
    return number(d, "reasons", v);
}

int nvmlDeviceGetTotalEccErrors(Device *d, unsigned kind, unsigned counter, unsigned long long *v) {
    (void)counter;
    return number(d, kind ? "ecc_uncorrected" : "ecc_corrected", v);
}

int nvmlDeviceGetUtilizationRates(Device *d, unsigned rates[2]) {
    int code = small(d, "utilisation", &rates[0]);
    if (code == OK) small(d, "memory_utilisation", &rates[1]);
    return code;
}

int nvmlDeviceGetMemoryInfo(Device *d, Memory *m) {
    int code = number(d, "total", &m->total);
    number(d, "free", &m->free);
    number(d, "used", &m->used);
    return code;
}

int nvmlDeviceGetMemoryInfo_v2(Device *d, Memory2 *m) {
    int code = number(d, "reserved", &m->reserved);
    if (code != OK || m->version != 0x02000028) return code ? code : 25;
    number(d, "free", &m->free);
    number(d, "used", &m->used);
    return number(d, "total", &m->total);
}

/* "processes 12:1000,13:2000": pids and bytes. */
int nvmlDeviceGetComputeRunningProcesses_v3(Device *d, unsigned *count, Process *found) {
    char word[WORD];
    unsigned n = 0;
    int code = say_of(d, "processes", word);
    if (code != OK) return code;
    for (char *each = strtok(word, ","); each; each = strtok(NULL, ","), n++) {
        if (n < *count) {
            char *size = strchr(each, ':');
            found[n] = (Process){(unsigned)atoi(each), strtoull(size + 1, NULL, 0), 0, 0};
        }
    }
    code = n > *count ? TOO_SMALL : OK;
    *count = n;
    return code;
}

/* "vgpus 3,5": each uses as many GiB. */
int nvmlDeviceGetActiveVgpus(Device *d, unsigned *count, unsigned *found) {
    char word[WORD];
    unsigned n = 0;
    int code = say_of(d, "vgpus", word);
    if (code != OK) return code;
    for (char *each = strtok(word, ","); each; each = strtok(NULL, ","), n++)
        if (n < *count) found[n] = (unsigned)atoi(each);
    code = n > *count ? TOO_SMALL : OK;
    *count = n;
    return code;
}

int nvmlVgpuInstanceGetFbUsage(unsigned vgpu, unsigned long long *bytes) {
    *bytes = (unsigned long long)vgpu << 30;
    return OK;
}

int nvmlDeviceGetMigMode(Device *d, unsigned *now, unsigned *pending) {
    int code = small(d, "migs", now);
    *now = *pending = code == OK && *now > 0;
    return code;
}

int nvmlDeviceGetMaxMigDeviceCount(Device *d, unsigned *count) {
    (void)d;
    *count = 7;
    return OK;
}

int nvmlDeviceGetMigDeviceHandleByIndex(Device *d, unsigned index, Device **mig) {
    unsigned count = 0;
    small(d, "migs", &count);
    if (index >= count) return NOT_FOUND;
    migs[d->gpu][index] = (Device){d->gpu, (int)index};
    *mig = &migs[d->gpu][index];
    return OK;
}

int nvmlDeviceGetSupportedEventTypes(Device *d, unsigned long long *kinds) {
    char word[WORD];
    *kinds = 8;
    return say_of(d, "xids", word);
}

int nvmlEventSetCreate(Device ***set) {
    static int made;
    *set = &listened[made++];
    return OK;
}

int nvmlDeviceRegisterEvents(Device *d, unsigned long long kinds, Device **set) {
    (void)kinds;
    *set = d;
    return OK;
}

/* "xids ,79,31": each is delivered once; a lost GPU still delivers its last. */
int nvmlEventSetWait_v2(Device **set, Event *event, unsigned ms) {
    char key[WORD], word[WORD];
    int n = 0, gpu = (*set)->gpu;
    (void)ms;
    snprintf(key, sizeof key, "%d.xids", gpu);
    if (say(key, word) != OK) return TIMEOUT;
    for (char *each = strtok(word, ","); each; each = strtok(NULL, ","), n++) {
        if (n < delivered[gpu]) continue;
        delivered[gpu]++;
        *event = (Event){*set, 8, strtoull(each, NULL, 0), 0, 0};
        return OK;
    }
    return TIMEOUT;
}

/* "field.38 3" for field 38 of a GPU, "field.161.5 3" for that of its link 5. */
int nvmlDeviceGetFieldValues(Device *d, int count, Field *fields) {
    char name[WORD], word[WORD];
    for (int i = 0; i < count; i++) {
        Field *f = &fields[i];
        if (f->scope) snprintf(name, sizeof name, "field.%u.%u", f->id, f->scope);
        else snprintf(name, sizeof name, "field.%u", f->id);
        f->ret = say_of(d, name, word);
        f->type = 3;
        f->value = f->ret == OK ? strtoull(word, NULL, 0) : 0;
    }
    return OK;
}
