// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package toyshell

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Device is a GPU of a container, or a part of one.
type Device struct {
	// GPU is the GPU's number in the container, Name its model and UUID its identity.
	GPU        int
	Name, UUID string
	// Profile and MIGUUID are of a MIG device; empty for a GPU.
	Profile, MIGUUID string
	// Share says which part of the GPU's time and memory is the container's, if pods share
	// the GPU: "1 of 4 replicas".
	Share string
	// MemoryMiB is the memory of the device, and UsedMiB what the container uses of it.
	MemoryMiB, UsedMiB int64
	// Utilization is in percent.
	Utilization int
	// PID is the container's process on the device; 0 for none.
	PID uint32
}

// nvidiaSMI prints the container's devices: as a table, as a list with -L, or the fields
// of --query-gpu.
func (s *session) nvidiaSMI(args []string) int {
	if len(s.container.Devices) == 0 {
		return s.fail(6, "No devices were found: the container requests no GPU")
	}
	var query, format string
	for _, arg := range args {
		switch {
		case arg == "-L" || arg == "--list-gpus":
			s.listGPUs()
			return 0
		case strings.HasPrefix(arg, "--query-gpu="):
			query = strings.TrimPrefix(arg, "--query-gpu=")
		case strings.HasPrefix(arg, "--format="):
			format = strings.TrimPrefix(arg, "--format=")
		default:
			return s.fail(exitUsage, "nvidia-smi: %s: only -L and --query-gpu=FIELDS --format=csv are in this simulation", arg)
		}
	}
	if query != "" {
		return s.queryGPUs(strings.Split(query, ","), strings.Split(format, ","))
	}
	s.tableOfGPUs()
	return 0
}

// listGPUs prints each GPU, and below it the container's MIG devices on it.
func (s *session) listGPUs() {
	last := -1
	instance := 0
	for _, d := range s.container.Devices {
		if d.GPU != last {
			fmt.Fprintf(s.out, "GPU %d: %s (UUID: %s)\n", d.GPU, d.Name, d.UUID)
			last, instance = d.GPU, 0
		}
		if d.Profile != "" {
			fmt.Fprintf(s.out, "  MIG %-12s Device %2d: (UUID: %s)\n", d.Profile, instance, d.MIGUUID)
			instance++
		}
	}
}

// gpuFields returns the values of the fields that --query-gpu has here.
func gpuFields(c *Container, d *Device) map[string]string {
	utilization := fmt.Sprintf("%d %%", d.Utilization)
	if d.Profile != "" {
		utilization = "[N/A]"
	}
	return map[string]string{
		"count":           strconv.Itoa(len(c.Devices)),
		"driver_version":  c.DriverVersion,
		"gpu_name":        d.Name,
		"gpu_uuid":        d.UUID,
		"index":           strconv.Itoa(d.GPU),
		"memory.free":     fmt.Sprintf("%d MiB", d.MemoryMiB-d.UsedMiB),
		"memory.total":    fmt.Sprintf("%d MiB", d.MemoryMiB),
		"memory.used":     fmt.Sprintf("%d MiB", d.UsedMiB),
		"name":            d.Name,
		"utilization.gpu": utilization,
		"uuid":            d.UUID,
	}
}

func (s *session) queryGPUs(fields, format []string) int {
	if !slices.Contains(format, "csv") {
		return s.fail(exitUsage, "nvidia-smi: --query-gpu needs --format=csv")
	}
	for i := range fields {
		fields[i] = strings.TrimSpace(fields[i])
		if _, known := gpuFields(&s.container, &s.container.Devices[0])[fields[i]]; !known {
			return s.fail(exitUsage, "Field %q is not a valid field to query in this simulation.", fields[i])
		}
	}
	if !slices.Contains(format, "noheader") {
		s.println(strings.Join(fields, ", "))
	}
	for i := range s.container.Devices {
		values := gpuFields(&s.container, &s.container.Devices[i])
		var line []string
		for _, field := range fields {
			value := values[field]
			if slices.Contains(format, "nounits") {
				value = strings.TrimSuffix(strings.TrimSuffix(value, " MiB"), " %")
			}
			line = append(line, value)
		}
		s.println(strings.Join(line, ", "))
	}
	return 0
}

// tableOfGPUs prints what is simulated, and so no temperatures, power or bus addresses.
func (s *session) tableOfGPUs() {
	const rule = "+-----+----------------------------+------------------+-----------------------+----------+\n"
	fmt.Fprintf(s.out, "NVIDIA-SMI (simulated)   Driver Version: %s\n", s.container.DriverVersion)
	fmt.Fprint(s.out, rule)
	fmt.Fprintf(s.out, "| GPU | %-26s | %-16s | %-21s | GPU-Util |\n", "Name", "Part", "Memory-Usage")
	fmt.Fprint(s.out, rule)
	for _, d := range s.container.Devices {
		share, utilization := "whole GPU", strconv.Itoa(d.Utilization)+" %"
		switch {
		case d.Profile != "":
			share, utilization = "MIG "+d.Profile, "N/A"
		case d.Share != "":
			share = d.Share
		}
		memory := fmt.Sprintf("%dMiB / %dMiB", d.UsedMiB, d.MemoryMiB)
		fmt.Fprintf(s.out, "| %3d | %-26s | %-16s | %21s | %8s |\n", d.GPU, d.Name, share, memory, utilization)
	}
	fmt.Fprint(s.out, rule)
	for _, d := range s.container.Devices {
		if d.PID != 0 {
			fmt.Fprintf(s.out, "Process %d uses %d MiB of GPU %d\n", d.PID, d.UsedMiB, d.GPU)
		}
	}
}
