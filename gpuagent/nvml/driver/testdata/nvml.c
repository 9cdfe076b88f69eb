// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// An old libnvidia-ml.so.1 of one A30 in MIG mode, which counts its profiles' instances as none
// and lacks many functions: what the real binding is tried on where there is no GPU.

#include <fcntl.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { OK = 0, INVALID = 2, UNSUPPORTED = 3, NOT_FOUND = 6, TOO_SMALL = 7 };

typedef unsigned int u32;
typedef unsigned long long u64;
typedef void *handle;

typedef struct { char legacy[16]; u32 domain, bus, device, id, subsystem; char bus_id[32]; } pci_info;
typedef struct { u64 total, free, used; } memory;
typedef struct { u32 id, p2p, slices, instances, sms, copy, decoders, encoders, jpeg, ofa; u64 mib; } profile;
typedef struct { u32 start, size; } placement;
typedef struct { handle device; u32 id, profile; placement at; } instance;
typedef struct { u32 id, slices, instances, sms, copy, decoders, encoders, jpeg, ofa; } compute_profile;
typedef struct { handle device, instance; u32 id, profile; } compute;
typedef struct { u32 pid; u64 used; u32 gi, ci; } process;
typedef struct { u32 pid; u64 at; u32 sm, mem, enc, dec; } sample;

static char gpu, mig[4], gis[4], cis[4];

// Like the real library it keeps the GPU's device node open until it is shut down.
static int node = -1;

int nvmlInit_v2(void) {
	const char *path = getenv("SLUICE_TEST_NVML_DEVICE");
	if (path && node < 0)
		node = open(path, O_RDONLY | O_CLOEXEC);
	return OK;
}

int nvmlInit(void) { return nvmlInit_v2(); }

int nvmlShutdown(void) {
	if (node >= 0)
		close(node);
	node = -1;
	return OK;
}

int nvmlSystemGetDriverVersion(char *text, u32 size) { strncpy(text, "470.57.02", size); return OK; }
int nvmlDeviceGetCount_v2(u32 *count) { *count = 1; return OK; }
int nvmlDeviceGetCount(u32 *count) { return nvmlDeviceGetCount_v2(count); }
int nvmlDeviceGetHandleByIndex_v2(u32 index, handle *device) { *device = &gpu; return index ? INVALID : OK; }
int nvmlDeviceGetHandleByIndex(u32 index, handle *device) { return nvmlDeviceGetHandleByIndex_v2(index, device); }

int nvmlDeviceGetHandleByUUID(const char *uuid, handle *device) {
	*device = &gpu;
	return strcmp(uuid, "GPU-a30") ? NOT_FOUND : OK;
}

int nvmlDeviceGetUUID(handle device, char *text, u32 size) {
	strncpy(text, "GPU-a30", size);
	for (int i = 0; i < 4; i++)
		if (device == &mig[i]) {
			strncpy(text, "MIG-0", size);
			text[4] = (char)('0' + i);
		}
	return OK;
}

int nvmlDeviceGetName(handle device, char *text, u32 size) { strncpy(text, "NVIDIA A30", size); return OK; }
int nvmlDeviceGetMemoryInfo(handle device, memory *m) { m->total = 24576ULL << 20; m->used = 1ULL << 30; m->free = 0; return OK; }
int nvmlDeviceGetMigMode(handle device, u32 *now, u32 *pending) { *now = *pending = 1; return OK; }

int nvmlDeviceGetPciInfo(handle device, pci_info *info) {
	memset(info, 0, sizeof *info);
	info->id = 0x20b710de;
	return OK;
}

int nvmlDeviceGetGpuInstanceProfileInfo(handle device, u32 index, profile *p) {
	static const profile one = {14, 0, 1, 0, 14, 1, 0, 0, 0, 0, 5952}, four = {0, 0, 4, 0, 56, 4, 4, 0, 1, 1, 24125};
	if (index >= 10)
		return INVALID;
	if (index != 0 && index != 3)
		return UNSUPPORTED;
	*p = index ? four : one;
	return OK;
}

int nvmlDeviceGetGpuInstancePossiblePlacements(handle device, u32 id, placement *places, u32 *count) {
	*count = id ? 4 : 1;
	for (u32 i = 0; places && i < *count; i++)
		places[i] = (placement){i, id ? 1 : 4};
	return OK;
}

int nvmlDeviceGetGpuInstances(handle device, u32 id, handle *list, u32 *count) {
	*count = id ? 3 : 0;
	for (u32 i = 0; i < *count; i++)
		list[i] = &gis[3 - i];
	return OK;
}

int nvmlDeviceGetGpuInstanceById(handle device, u32 id, handle *gi) {
	if (id < 1 || id > 3)
		return NOT_FOUND;
	*gi = &gis[id];
	return OK;
}

int nvmlGpuInstanceGetInfo(handle gi, instance *info) {
	u32 id = (u32)((char *)gi - gis);
	*info = (instance){&gpu, id, 14, {id, 1}};
	return OK;
}

int nvmlGpuInstanceGetComputeInstanceProfileInfo(handle gi, u32 index, u32 engine, compute_profile *p) {
	memset(p, 0, sizeof *p);
	p->slices = 1;
	return index == 0 ? OK : index < 8 ? UNSUPPORTED : INVALID;
}

int nvmlGpuInstanceGetComputeInstances(handle gi, u32 profile, handle *list, u32 *count) {
	*count = 1;
	list[0] = &cis[(char *)gi - gis];
	return OK;
}

int nvmlComputeInstanceGetInfo(handle ci, compute *info) {
	long i = (char *)ci - cis;
	*info = (compute){&mig[i], &gis[i], 0, 0};
	return OK;
}

static int processes(process *list, u32 *count) {
	u32 room = *count;
	*count = 3;
	if (room < 3)
		return TOO_SMALL;
	for (u32 i = 0; i < 3; i++)
		list[i] = (process){100 + i, i == 2 ? ~0ULL : (u64)i << 30, 3 - i, 0};
	return OK;
}

int nvmlDeviceGetComputeRunningProcesses_v3(handle device, u32 *count, process *list) { return processes(list, count); }
int nvmlDeviceGetComputeRunningProcesses(handle device, u32 *count, process *list) { return processes(list, count); }

// The list grows between the binding's two calls, the first time.
int nvmlDeviceGetProcessUtilization(handle device, sample *list, u32 *count, u64 since) {
	static int calls;
	calls++;
	if (!list) {
		*count = 1;
		return TOO_SMALL;
	}
	if (calls == 2) {
		*count = 3;
		return TOO_SMALL;
	}
	*count = 1;
	list[0] = (sample){100, since + 1000, 42, 0, 0, 0};
	return OK;
}
