// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

// A libnvidia-ml.so.1 of eight H100 in MIG mode, each with seven 1g.10gb. Each GPU has PROCESSES processes, of which
// each instance has one before one has a second. The PIDs of the GPUs follow each other.
// It counts the calls of all its functions: the driver's version is the number of calls so far.

#include <stdio.h>
#include <string.h>

enum { OK = 0, INVALID = 2, UNSUPPORTED = 3, NOT_FOUND = 6, TOO_SMALL = 7 };
enum { GPUS = 8, SLICES = 7 };
#ifndef PROCESSES
#define PROCESSES SLICES
#endif
#define UUID "00000000-0000-4000-8000-%012u"

typedef unsigned int u32;
typedef unsigned long long u64;
typedef char *handle;

typedef struct { char legacy[16]; u32 domain, bus, device, id, subsystem; char bus_id[32]; } pci_info;
typedef struct { u64 total, free, used; } memory;
typedef struct { u32 version; u64 total, reserved, free, used; } memory2;
typedef struct { u32 id, p2p, slices, instances, sms, copy, decoders, encoders, jpeg, ofa; u64 mib; } profile;
typedef struct { u32 start, size; } placement;
typedef struct { handle device; u32 id, profile; placement at; } instance;
typedef struct { u32 id, slices, instances, sms, copy, decoders, encoders, jpeg, ofa; } compute_profile;
typedef struct { handle device, instance; u32 id, profile; placement at; } compute;
typedef struct { u32 pid; u64 used; u32 gi, ci; } process;

static u64 calls;
static char gpus[GPUS], migs[GPUS * SLICES], gis[GPUS * SLICES], cis[GPUS * SLICES];

static int counted(int result) { calls++; return result; }

int nvmlInit_v2(void) { return counted(OK); }
int nvmlInit(void) { return counted(OK); }
int nvmlShutdown(void) { return counted(OK); }
int nvmlSystemGetDriverVersion(char *text, u32 size) { snprintf(text, size, "%llu", calls); return OK; }
int nvmlDeviceGetCount_v2(u32 *count) { *count = GPUS; return counted(OK); }
int nvmlDeviceGetCount(u32 *count) { return nvmlDeviceGetCount_v2(count); }
int nvmlDeviceGetHandleByIndex_v2(u32 i, handle *device) { *device = &gpus[i]; return counted(i < GPUS ? OK : INVALID); }
int nvmlDeviceGetHandleByIndex(u32 i, handle *device) { return nvmlDeviceGetHandleByIndex_v2(i, device); }

int nvmlDeviceGetHandleByUUID(const char *uuid, handle *device) {
	u32 i = 0;
	int found = sscanf(uuid, "GPU-" UUID, &i) == 1 && i < GPUS;
	*device = &gpus[i % GPUS];
	return counted(found ? OK : NOT_FOUND);
}

int nvmlDeviceGetUUID(handle device, char *text, u32 size) {
	if (device >= migs && device < migs + GPUS * SLICES)
		snprintf(text, size, "MIG-" UUID, (u32)(device - migs));
	else
		snprintf(text, size, "GPU-" UUID, (u32)(device - gpus));
	return counted(OK);
}

int nvmlDeviceGetName(handle device, char *text, u32 size) { snprintf(text, size, "NVIDIA H100 80GB HBM3"); return counted(OK); }
int nvmlDeviceGetMemoryInfo(handle device, memory *m) { m->total = 81559ULL << 20; m->used = 1ULL << 30; m->free = 0; return counted(OK); }
int nvmlDeviceGetMemoryInfo_v2(handle device, memory2 *m) { m->total = 81559ULL << 20; m->used = 1ULL << 30; return counted(OK); }
int nvmlDeviceGetMigMode(handle device, u32 *now, u32 *pending) { *now = *pending = 1; return counted(OK); }
int nvmlDeviceGetUtilizationRates(handle device, u32 *rates) { return counted(UNSUPPORTED); }

int nvmlDeviceGetPciInfo_v3(handle device, pci_info *info) {
	memset(info, 0, sizeof *info);
	info->id = 0x233010de;
	return counted(OK);
}
int nvmlDeviceGetPciInfo(handle device, pci_info *info) { return nvmlDeviceGetPciInfo_v3(device, info); }

int nvmlDeviceGetGpuInstanceProfileInfo(handle device, u32 index, profile *p) {
	static const profile all[] = {
		[0] = {19, 0, 1, 7, 16, 1, 1, 0, 1, 0, 9984}, [1] = {14, 0, 2, 3, 32, 2, 2, 0, 2, 0, 20096},
		[2] = {9, 0, 3, 2, 60, 3, 3, 0, 3, 0, 40448}, [3] = {5, 0, 4, 1, 64, 4, 4, 0, 4, 0, 40448},
		[4] = {0, 0, 7, 1, 132, 8, 7, 0, 7, 1, 81152}, [7] = {20, 0, 1, 1, 16, 1, 1, 0, 1, 1, 9984},
		[9] = {15, 0, 1, 4, 26, 1, 1, 0, 1, 0, 20096},
	};
	if (index >= 17)
		return counted(INVALID);
	if (index >= sizeof all / sizeof *all || !all[index].slices)
		return counted(UNSUPPORTED);
	*p = all[index];
	return counted(OK);
}

int nvmlDeviceGetGpuInstancePossiblePlacements(handle device, u32 id, placement *places, u32 *count) {
	u32 size = id == 19 || id == 20 ? 1 : id == 14 || id == 15 ? 2 : id == 0 ? 8 : 4;
	*count = size == 1 ? 7 : id == 15 ? 4 : id == 14 ? 3 : id == 9 ? 2 : 1;
	for (u32 i = 0; places && i < *count; i++)
		places[i] = (placement){i * size, size};
	return counted(OK);
}
int nvmlDeviceGetGpuInstancePossiblePlacements_v2(handle device, u32 id, placement *places, u32 *count) {
	return nvmlDeviceGetGpuInstancePossiblePlacements(device, id, places, count);
}

int nvmlDeviceGetGpuInstances(handle device, u32 id, handle *list, u32 *count) {
	*count = id == 19 ? SLICES : 0;
	for (u32 i = 0; i < *count; i++)
		list[i] = &gis[(device - gpus) * SLICES + i];
	return counted(OK);
}

int nvmlDeviceGetGpuInstanceById(handle device, u32 id, handle *gi) {
	if (id < 7 || id >= 7 + SLICES)
		return counted(NOT_FOUND);
	*gi = &gis[(device - gpus) * SLICES + id - 7];
	return counted(OK);
}

int nvmlGpuInstanceGetInfo(handle gi, instance *info) {
	u32 i = (u32)(gi - gis);
	*info = (instance){&gpus[i / SLICES], 7 + i % SLICES, 19, {i % SLICES, 1}};
	return counted(OK);
}

int nvmlGpuInstanceGetComputeInstanceProfileInfo(handle gi, u32 index, u32 engine, compute_profile *p) {
	memset(p, 0, sizeof *p);
	p->slices = p->instances = 1;
	return counted(index == 0 ? OK : index < 10 ? UNSUPPORTED : INVALID);
}

int nvmlGpuInstanceGetComputeInstances(handle gi, u32 profile, handle *list, u32 *count) {
	*count = 1;
	list[0] = &cis[gi - gis];
	return counted(OK);
}

int nvmlComputeInstanceGetInfo_v2(handle ci, compute *info) {
	long i = ci - cis;
	*info = (compute){&migs[i], &gis[i], 0, 0, {0, 1}};
	return counted(OK);
}
int nvmlComputeInstanceGetInfo(handle ci, compute *info) { return nvmlComputeInstanceGetInfo_v2(ci, info); }

// The binding calls once for the number of processes.
int nvmlDeviceGetComputeRunningProcesses_v3(handle device, u32 *count, process *list) {
	u32 room = *count;
	*count = PROCESSES;
	if (room < PROCESSES)
		return counted(TOO_SMALL);
	for (u32 i = 0; i < PROCESSES; i++)
		list[i] = (process){5000000 + (u32)(device - gpus) * PROCESSES + i, 1ULL << 30, 7 + i % SLICES, 0};
	return counted(OK);
}
int nvmlDeviceGetComputeRunningProcesses(handle device, u32 *count, process *list) {
	return nvmlDeviceGetComputeRunningProcesses_v3(device, count, list);
}
int nvmlDeviceGetGraphicsRunningProcesses_v3(handle device, u32 *count, process *list) { *count = 0; return counted(OK); }
int nvmlDeviceGetMPSComputeRunningProcesses_v3(handle device, u32 *count, process *list) { *count = 0; return counted(OK); }
