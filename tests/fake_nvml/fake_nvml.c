/* A stand-in for libnvidia-ml.so.1, driven by a text file that is read again at every call: a test breaks a GPU while
 * the program under test runs. FAKE_NVML names the file; lines "key=value", the last one counts; "gpu.*." is for all.
 *
 *   count, driver, nvml, cuda, init_error           of the library
 *   error.FUNCTION=CODE, gpu.0.error.FUNCTION=CODE  FUNCTION without "nvml" answers with this error; 13: it is missing
 *   delay_s=SECONDS, slow=FUNCTION                  every call waits, or only that one
 *   gpu.0.lost=1                                    calls on it answer GPU_IS_LOST; 2: there is no handle either
 *   gpu.0.field.230=1, gpu.0.field.214.3=7          field values, by id, or by id and scope; notsup: not supported
 *   gpu.0.FIELD                                     name, uuid, serial, temp, ...: see below
 *   gpu.0.procs=PID:MIB,PID:MIB                     processes
 *   p2p.0.1=CODE                                    P2P status of a pair
 *
 * Built with -DOLD_DRIVER it lacks what drivers before R525 do not have. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

typedef int R;
typedef struct dev *D;
typedef unsigned int U;
typedef unsigned long long L;
enum { OK = 0, INVAL = 2, NOSUP = 3, NOTFOUND = 6, SIZE = 7, LOST = 15 };

static char text[1 << 16];

/* The file, read again where it is another one or was written since. */
static void load(void) {
  static struct stat had;
  struct stat now;
  const char *path = getenv("FAKE_NVML");
  FILE *file;
  size_t n;
  if (!path || stat(path, &now)) {
    text[0] = 0;
    had.st_ino = 0;
    return;
  }
  if (now.st_ino == had.st_ino && now.st_size == had.st_size && now.st_mtim.tv_sec == had.st_mtim.tv_sec &&
      now.st_mtim.tv_nsec == had.st_mtim.tv_nsec)
    return;
  file = fopen(path, "r");
  n = file ? fread(text, 1, sizeof text - 1, file) : 0;
  text[n] = 0;
  if (file) fclose(file);
  had = now;
}
static int get(const char *key, char *out, size_t n) {
  size_t length = strlen(key);
  int hit = 0;
  load();
  for (const char *line = text; *line;) {
    size_t end = strcspn(line, "\n");
    if (!strncmp(line, key, length) && line[length] == '=') {
      snprintf(out, n, "%.*s", (int)(end - length - 1), line + length + 1);
      hit = 1;
    }
    line += end + (line[end] == '\n');
  }
  return hit;
}
static double getd(const char *key, double none) {
  char b[64];
  return get(key, b, sizeof b) ? strtod(b, 0) : none;
}
static long geti(const char *key, long none) {
  char b[64];
  return get(key, b, sizeof b) ? strtol(b, 0, 0) : none;
}
static U idx(D d) { return (U)((size_t)d - 1); }
static D dev(U i) { return (D)(size_t)(i + 1); }
static int gs(D d, const char *field, char *out, size_t n) {
  char key[128];
  snprintf(key, sizeof key, "gpu.%u.%s", idx(d), field);
  if (get(key, out, n)) return 1;
  snprintf(key, sizeof key, "gpu.*.%s", field);
  return get(key, out, n);
}
static L gi(D d, const char *field, L none) {
  char b[64];
  return gs(d, field, b, sizeof b) ? strtoull(b, 0, 0) : none;
}
static int unsupported(D d, const char *field) {
  char b[64];
  return gs(d, field, b, sizeof b) && !strcmp(b, "notsup");
}
/* What every call begins with. */
static R before(const char *name, D d) {
  char key[128], slow[128];
  double wait_s = getd("delay_s", 0);
  if (wait_s > 0 && (!get("slow", slow, sizeof slow) || !strcmp(slow, name))) {
    struct timespec t = {(time_t)wait_s, (long)((wait_s - (long)wait_s) * 1e9)};
    nanosleep(&t, 0);
  }
  snprintf(key, sizeof key, "error.%s", name);
  if (geti(key, 0)) return (R)geti(key, 0);
  if (!d) return OK;
  if (gi(d, "lost", 0)) return LOST;
  return (R)gi(d, key, 0);
}
#define BEGIN(name, d)              \
  do {                              \
    R refused = before(name, d);    \
    if (refused) return refused;    \
  } while (0)
/* A function that gives one number: its name, the field, what it is where the file says nothing. */
#define NUMBER(name, type, field, none)       \
  R nvml##name(D d, type *o) {                \
    BEGIN(#name, d);                          \
    if (unsupported(d, field)) return NOSUP;  \
    *o = (type)gi(d, field, none);            \
    return OK;                                \
  }
#define TEXT(name, field, ...)                        \
  R nvml##name(D d, char *o, U n) {                   \
    char b[96];                                       \
    BEGIN(#name, d);                                  \
    if (unsupported(d, field)) return NOSUP;          \
    if (gs(d, field, b, sizeof b)) snprintf(o, n, "%s", b); \
    else snprintf(o, n, __VA_ARGS__);                 \
    return OK;                                        \
  }

R nvmlInitWithFlags(U flags) {
  (void)flags;
  BEGIN("Init", 0);
  return (R)geti("init_error", OK);
}
R nvmlInit_v2(void) { return nvmlInitWithFlags(0); }
R nvmlShutdown(void) {
  static int times;
  return times++ % 2 ? 1 : OK;
}
const char *nvmlErrorString(R r) {
  switch (r) {
    case 1: return "Uninitialized";
    case NOSUP: return "Not Supported";
    case 4: return "Insufficient Permissions";
    case 9: return "Driver Not Loaded";
    case 10: return "Timeout";
    case 13: return "Function Not Found";
    case LOST: return "GPU is lost";
    case 16: return "GPU requires restart";
    case 18: return "Driver/library version mismatch";
    default: return "Unknown Error";
  }
}
R nvmlSystemGetDriverVersion(char *o, U n) {
  char b[96];
  BEGIN("SystemGetDriverVersion", 0);
  snprintf(o, n, "%s", get("driver", b, sizeof b) ? b : "550.90.07");
  return OK;
}
R nvmlSystemGetCudaDriverVersion_v2(int *o) {
  BEGIN("SystemGetCudaDriverVersion_v2", 0);
  *o = (int)geti("cuda", 12040);
  return OK;
}
R nvmlDeviceGetCount_v2(U *o) {
  BEGIN("DeviceGetCount", 0);
  *o = (U)geti("count", 8);
  return OK;
}
R nvmlDeviceGetHandleByIndex_v2(U i, D *o) {
  BEGIN("DeviceGetHandleByIndex", 0);
  if (i >= (U)geti("count", 8)) return INVAL;
  *o = dev(i);
  if (gi(*o, "lost", 0) == 2) return LOST;
  return (R)gi(*o, "error.DeviceGetHandleByIndex", OK);
}
R nvmlDeviceGetIndex(D d, U *o) {
  *o = idx(d);
  return OK;
}
TEXT(DeviceGetName, "name", "NVIDIA H100 80GB HBM3")
TEXT(DeviceGetUUID, "uuid", "GPU-00000000-0000-0000-0000-%012u", idx(d))
TEXT(DeviceGetSerial, "serial", "16524%08u", idx(d))
typedef struct {
  char legacy[16];
  U domain, bus, device, id, sub;
  char busid[32];
} Pci;
R nvmlDeviceGetPciInfo_v3(D d, Pci *p) {
  BEGIN("DeviceGetPciInfo", d);
  memset(p, 0, sizeof *p);
  p->bus = (U)gi(d, "bus", 0x1a + idx(d) * 0x0b);
  p->id = 0x233010deu;
  snprintf(p->busid, sizeof p->busid, "00000000:%02X:00.0", p->bus);
  snprintf(p->legacy, sizeof p->legacy, "0000:%02X:00.0", p->bus);
  return OK;
}
R nvmlDeviceGetTemperature(D d, int sensor, U *o) {
  (void)sensor;
  BEGIN("DeviceGetTemperature", d);
  *o = (U)gi(d, "temp", 45);
  return OK;
}
R nvmlDeviceGetTemperatureThreshold(D d, int which, U *o) {
  char field[24];
  BEGIN("DeviceGetTemperatureThreshold", d);
  snprintf(field, sizeof field, "threshold.%d", which);
  if (unsupported(d, field)) return NOSUP;
  *o = (U)gi(d, field, which == 0 ? 92 : which == 1 ? 89 : which == 2 ? 95 : 87);
  return OK;
}
NUMBER(DeviceGetPowerUsage, U, "power_mw", 120000)
NUMBER(DeviceGetEnforcedPowerLimit, U, "limit_mw", 700000)
NUMBER(DeviceGetPowerManagementDefaultLimit, U, "default_limit_mw", 700000)
NUMBER(DeviceGetCurrPcieLinkWidth, U, "width", 16)
NUMBER(DeviceGetMaxPcieLinkWidth, U, "max_width", 16)
NUMBER(DeviceGetCurrPcieLinkGeneration, U, "gen", 5)
NUMBER(DeviceGetMaxPcieLinkGeneration, U, "max_gen", 5)
NUMBER(DeviceGetPerformanceState, U, "pstate", 0)
NUMBER(DeviceGetPowerState, U, "pstate", 0)
NUMBER(DeviceGetPersistenceMode, U, "persistence", 1)
NUMBER(DeviceGetRetiredPagesPendingStatus, U, "retired_pending", 0)
/* Counters that grow at every look: "replay_step". */
R nvmlDeviceGetPcieReplayCounter(D d, U *o) {
  static U looks[64];
  BEGIN("DeviceGetPcieReplayCounter", d);
  if (unsupported(d, "replay")) return NOSUP;
  *o = (U)(gi(d, "replay", 0) + looks[idx(d) % 64]++ * gi(d, "replay_step", 0));
  return OK;
}
R nvmlDeviceGetClockInfo(D d, int type, U *o) {
  BEGIN("DeviceGetClockInfo", d);
  *o = (U)gi(d, type == 2 ? "mem_clock" : "sm_clock", 1980);
  return OK;
}
R nvmlDeviceGetMaxClockInfo(D d, int type, U *o) {
  (void)type;
  BEGIN("DeviceGetMaxClockInfo", d);
  *o = (U)gi(d, "max_sm_clock", 1980);
  return OK;
}
/* "throttle_once": only in the first look. */
static R reasons(D d, L *o) {
  static int looks[64];
  if (unsupported(d, "throttle")) return NOSUP;
  *o = gi(d, "throttle", 1) | (looks[idx(d) % 64]++ ? 0 : gi(d, "throttle_once", 0));
  return OK;
}
R nvmlDeviceGetCurrentClocksThrottleReasons(D d, L *o) {
  BEGIN("DeviceGetCurrentClocksThrottleReasons", d);
  return reasons(d, o);
}
typedef struct { U gpu, memory; } Rates;
R nvmlDeviceGetUtilizationRates(D d, Rates *o) {
  BEGIN("DeviceGetUtilizationRates", d);
  o->gpu = (U)gi(d, "util", 0);
  o->memory = 0;
  return OK;
}
typedef struct { L total, free, used; } Memory;
R nvmlDeviceGetMemoryInfo(D d, Memory *o) {
  BEGIN("DeviceGetMemoryInfo", d);
  if (unsupported(d, "memory")) return NOSUP;
  o->total = gi(d, "memory", 85520809984ull);
  o->used = gi(d, "mem_used", 0) + gi(d, "mem_reserved", 600ull << 20);
  o->free = o->total - o->used;
  return OK;
}
R nvmlDeviceGetTotalEccErrors(D d, int kind, int counter, L *o) {
  static const char *const fields[2][2] = {{"ecc_cor_vol", "ecc_cor_agg"}, {"ecc_unc_vol", "ecc_unc_agg"}};
  BEGIN("DeviceGetTotalEccErrors", d);
  *o = gi(d, fields[kind & 1][counter & 1], 0);
  return OK;
}
R nvmlDeviceGetEccMode(D d, int *now, int *later) {
  BEGIN("DeviceGetEccMode", d);
  if (unsupported(d, "ecc_mode")) return NOSUP;
  *now = (int)gi(d, "ecc_mode", 1);
  *later = (int)gi(d, "ecc_pending", *now);
  return OK;
}
R nvmlDeviceGetRetiredPages(D d, int cause, U *n, L *pages) {
  U have;
  BEGIN("DeviceGetRetiredPages", d);
  if (!gi(d, "retires", 0)) return NOSUP;
  have = (U)gi(d, cause ? "retired_dbe" : "retired_sbe", 0);
  if (pages)
    for (U i = 0; i < have && i < *n; i++) pages[i] = i;
  *n = have;
  return OK;
}
R nvmlDeviceGetNvLinkState(D d, U link, int *o) {
  char field[24];
  BEGIN("DeviceGetNvLinkState", d);
  if ((long)gi(d, "nvlinks", 18) <= 0) return NOSUP;
  if (link >= (U)gi(d, "nvlinks", 18)) return INVAL;
  snprintf(field, sizeof field, "nvlink.%u", link);
  *o = (int)gi(d, field, gi(d, "nvlink_all", 1));
  return OK;
}
R nvmlDeviceGetMigMode(D d, U *now, U *later) {
  BEGIN("DeviceGetMigMode", d);
  if (unsupported(d, "mig")) return NOSUP;
  *now = (U)gi(d, "mig", 0);
  *later = (U)gi(d, "mig_pending", *now);
  return OK;
}
NUMBER(DeviceGetMaxMigDeviceCount, U, "mig_max", 7)
R nvmlDeviceGetMigDeviceHandleByIndex(D d, U i, D *o) {
  BEGIN("DeviceGetMigDeviceHandleByIndex", d);
  if (i >= (U)gi(d, "mig_devices", 0)) return NOTFOUND;
  *o = dev(1000 + idx(d) * 8 + i);
  return OK;
}
typedef struct {
  U id, scope;
  long long at, latency;
  int type;
  R ret;
  union { double d; U ui; L ull; } v;
} Field;
R nvmlDeviceGetFieldValues(D d, int n, Field *values) {
  BEGIN("DeviceGetFieldValues", d);
  for (int i = 0; i < n; i++) {
    char key[40], b[64];
    snprintf(key, sizeof key, "field.%u.%u", values[i].id, values[i].scope);
    int hit = gs(d, key, b, sizeof b);
    snprintf(key, sizeof key, "field.%u", values[i].id);
    hit = hit || gs(d, key, b, sizeof b);
    values[i].ret = NOSUP;
    if (!hit || !strcmp(b, "notsup")) continue;
    values[i].ret = OK;
    values[i].v.ull = 0;
    if (*b == '-') {
      values[i].type = 4;
      values[i].v.ull = (L)strtoll(b, 0, 0);
    } else {
      values[i].type = 3;
      values[i].v.ull = strtoull(b, 0, 0);
    }
  }
  return OK;
}
typedef struct {
  U pid;
  L memory;
  U gi, ci;
} Process;
R nvmlDeviceGetComputeRunningProcesses_v3(D d, U *n, Process *out) {
  char b[256];
  U have = 0, room = *n;
  BEGIN("DeviceGetComputeRunningProcesses", d);
  if (gs(d, "procs", b, sizeof b))
    for (char *word = strtok(b, ","); word; word = strtok(0, ",")) {
      char *mib = strchr(word, ':');
      if (out && have < room) {
        out[have].pid = (U)strtoul(word, 0, 10);
        out[have].memory = mib ? strtoull(mib + 1, 0, 10) << 20 : ~0ull;
        out[have].gi = out[have].ci = ~0u;
      }
      have++;
    }
  *n = have;
  return have > room || (have && !out) ? SIZE : OK;
}
R nvmlDeviceGetP2PStatus(D a, D b, int index, int *o) {
  char key[48];
  (void)index;
  BEGIN("DeviceGetP2PStatus", a);
  BEGIN("DeviceGetP2PStatus", b);
  snprintf(key, sizeof key, "p2p.%u.%u", idx(a) < idx(b) ? idx(a) : idx(b), idx(a) < idx(b) ? idx(b) : idx(a));
  *o = (int)geti(key, geti("p2p", 0));
  return OK;
}
#ifndef OLD_DRIVER
R nvmlDeviceGetCurrentClocksEventReasons(D d, L *o) {
  BEGIN("DeviceGetCurrentClocksEventReasons", d);
  return reasons(d, o);
}
typedef struct {
  U version;
  L total, reserved, free, used;
} Memory2;
R nvmlDeviceGetMemoryInfo_v2(D d, Memory2 *o) {
  BEGIN("DeviceGetMemoryInfo_v2", d);
  if (unsupported(d, "memory")) return NOSUP;
  o->total = gi(d, "memory", 85520809984ull);
  o->reserved = gi(d, "mem_reserved", 600ull << 20);
  o->used = gi(d, "mem_used", 0);
  o->free = o->total - o->reserved - o->used;
  return OK;
}
typedef struct {
  U version;
  int margin;
} Margin;
R nvmlDeviceGetMarginTemperature(D d, Margin *o) {
  char b[32];
  BEGIN("DeviceGetMarginTemperature", d);
  if (!gs(d, "margin", b, sizeof b) || !strcmp(b, "notsup")) return NOSUP;
  o->margin = atoi(b);
  return OK;
}
R nvmlDeviceGetRemappedRows(D d, U *cor, U *unc, U *pending, U *failed) {
  BEGIN("DeviceGetRemappedRows", d);
  if (unsupported(d, "remap")) return NOSUP;
  *cor = (U)gi(d, "remap_cor", 0);
  *unc = (U)gi(d, "remap_unc", 0);
  *pending = (U)gi(d, "remap_pending", 0);
  *failed = (U)gi(d, "remap_failed", 0);
  return OK;
}
typedef struct { U max, high, partial, low, none; } Histogram;
R nvmlDeviceGetRowRemapperHistogram(D d, Histogram *o) {
  BEGIN("DeviceGetRowRemapperHistogram", d);
  if (unsupported(d, "remap")) return NOSUP;
  memset(o, 0, sizeof *o);
  o->none = (U)gi(d, "banks_none", 0);
  o->low = (U)gi(d, "banks_low", 0);
  o->max = 2560 - o->none - o->low;
  return OK;
}
typedef struct { U version, channel, cluster; } Repair;
R nvmlDeviceGetRepairStatus(D d, Repair *o) {
  BEGIN("DeviceGetRepairStatus", d);
  if (!gi(d, "repairs", 0)) return NOSUP;
  o->channel = (U)gi(d, "channel_repair", 0);
  o->cluster = (U)gi(d, "cluster_repair", 0);
  return OK;
}
typedef struct {
  U version;
  L agg_parity, agg_secded, agg_cor, vol_parity, vol_secded, vol_cor, l2, sm, pcie, mcu, other;
  U exceeded;
} Sram;
R nvmlDeviceGetSramEccErrorStatus(D d, Sram *o) {
  BEGIN("DeviceGetSramEccErrorStatus", d);
  if (unsupported(d, "sram")) return NOSUP;
  o->vol_secded = gi(d, "sram_unc_vol", 0);
  o->agg_secded = gi(d, "sram_unc_agg", 0);
  o->vol_parity = o->agg_parity = 0;
  o->exceeded = (U)gi(d, "sram_exceeded", 0);
  return OK;
}
typedef struct {
  U version;
  unsigned char cluster[16];
  R status;
  U clique, state, health;
  unsigned char summary;
} Fabric;
R nvmlDeviceGetGpuFabricInfoV(D d, Fabric *o) {
  BEGIN("DeviceGetGpuFabricInfoV", d);
  if (unsupported(d, "fabric")) return NOSUP;
  o->state = (U)gi(d, "fabric", 0);
  o->status = (R)gi(d, "fabric_status", 0);
  o->health = (U)gi(d, "fabric_health", 0);
  return OK;
}
#endif
