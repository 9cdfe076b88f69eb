// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package host

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestParseCapability(t *testing.T) {
	const whole = "DeviceFileMinor: 66\nDeviceFileMode: 292\nDeviceFileModify: 1\n"
	for name, tc := range map[string]struct {
		text string
		want capability
		err  string
	}{
		"of the driver":          {text: whole, want: capability{66, 0o444, true}},
		"not to be changed":      {text: strings.Replace(whole, "Modify: 1", "Modify: 0", 1), want: capability{66, 0o444, false}},
		"the first minor":        {text: strings.Replace(whole, "66", "0", 1), want: capability{0, 0o444, true}},
		"the last minor":         {text: strings.Replace(whole, "66", "1048575", 1), want: capability{1048575, 0o444, true}},
		"without Modify":         {text: "DeviceFileMinor: 66\nDeviceFileMode: 292\n", want: capability{66, 0o444, true}},
		"without the last break": {text: strings.TrimSpace(whole), want: capability{66, 0o444, true}},
		"with a later field":     {text: whole + "DeviceFileColor: blue\nno colon\n\n", want: capability{66, 0o444, true}},
		"in another order":       {text: "DeviceFileMode:\t292\nDeviceFileMinor:66\n", want: capability{66, 0o444, true}},
		"empty":                  {err: "lacks the field DeviceFileMinor"},
		"without mode":           {text: "DeviceFileMinor: 66\n", err: "lacks the field DeviceFileMode"},
		"a name that is longer":  {text: "XDeviceFileMinor: 66\nDeviceFileMode: 292\n", err: "lacks the field DeviceFileMinor"},
		"minor twice":            {text: whole + "DeviceFileMinor: 67\n", err: "DeviceFileMinor twice"},
		"minor too large":        {text: strings.Replace(whole, "66", "1048576", 1), err: "not a number from 0 to 1048575"},
		"minor that overflows":   {text: strings.Replace(whole, "66", "99999999999999999999", 1), err: "not a number"},
		"negative minor":         {text: strings.Replace(whole, "66", "-1", 1), err: "not a number"},
		"signed minor":           {text: strings.Replace(whole, "66", "+66", 1), err: "not a number"},
		"hexadecimal minor":      {text: strings.Replace(whole, "66", "0x42", 1), err: "not a number"},
		"minor with a path":      {text: strings.Replace(whole, "66", "66/../../null", 1), err: "not a number"},
		"mode with more bits":    {text: strings.Replace(whole, "292", "2541", 1), err: "DeviceFileMode"},
		"another Modify":         {text: strings.Replace(whole, "Modify: 1", "Modify: 2", 1), err: "DeviceFileModify"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := parseCapability(tc.text)
			if got != tc.want || (err == nil) != (tc.err == "") || err != nil && !strings.Contains(err.Error(), tc.err) {
				t.Errorf("%+v, %v; want %+v, %s", got, err, tc.want, tc.err)
			}
		})
	}
}

const procDevices = `Character devices:
  1 mem
195 nvidia
234 nvidia-nvlink
235 nvidia-caps-imex-channels
236 nvidia-caps
509 nvidia-caps

Block devices:
236 nvidia-caps
`

func TestParseMajor(t *testing.T) {
	devices := strings.Replace(procDevices, "509 nvidia-caps\n", "", 1)
	for name, tc := range map[string]struct {
		text string
		want uint32
		err  string
	}{
		"of the kernel":         {text: devices, want: 236},
		"twice":                 {text: procDevices, err: "twice"},
		"none":                  {text: strings.Replace(devices, "236", "236 x", 1), err: "the driver is not loaded"},
		"of block devices only": {text: "Block devices:\n  8 nvidia-caps\n", err: "the driver is not loaded"},
		"outside of a section":  {text: "236 nvidia-caps\n", err: "the driver is not loaded"},
		"only a prefix":         {text: "Character devices:\n236 nvidia-caps-imex-channels\n", err: "the driver is not loaded"},
		"too large":             {text: "Character devices:\n4096 nvidia-caps\n", err: "not a number from 0 to 4095"},
		"zero":                  {text: "Character devices:\n0 nvidia-caps\n", err: "is 0"},
		"not a number":          {text: "Character devices:\nab nvidia-caps\n", err: "not a number"},
		"empty":                 {err: "the driver is not loaded"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := parseMajor(tc.text, capabilitiesDriver)
			if err == nil && got != tc.want || (err == nil) != (tc.err == "") || err != nil && !strings.Contains(err.Error(), tc.err) {
				t.Errorf("%d, %v; want %d, %s", got, err, tc.want, tc.err)
			}
		})
	}
}

// writeFile writes a file of a fake procfs.
func writeFile(t *testing.T, text string, path ...string) {
	t.Helper()
	file := filepath.Join(path...)
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// writeGPU writes the information of a GPU, as the driver does.
func writeGPU(t *testing.T, proc, address, uuid string, minor int) {
	t.Helper()
	writeFile(t, fmt.Sprintf("Model: \t\t NVIDIA A100-SXM4-40GB\nIRQ:   \t\t 44\nGPU UUID: \t %s\nVideo BIOS: \t 92.00.45.00.03\n"+
		"Bus Location: \t %s\nDevice Minor: \t %d\nGPU Excluded:\t No\n", uuid, address, minor), proc, "driver/nvidia/gpus", address, "information")
}

func TestGPUMinor(t *testing.T) {
	proc := t.TempDir()
	if _, err := gpuMinor(proc, "GPU-a"); err == nil {
		t.Error("no error without the driver")
	}
	writeGPU(t, proc, "0000:07:00.0", "GPU-a", 3)
	writeGPU(t, proc, "0000:0f:00.0", "GPU-ab", 0)
	if minor, err := gpuMinor(proc, "GPU-a"); minor != 3 || err != nil {
		t.Errorf("%d, %v", minor, err)
	}
	for uuid, want := range map[string]string{"GPU-b": "no GPU below", "": "no GPU below"} {
		if _, err := gpuMinor(proc, uuid); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", uuid, err)
		}
	}
	writeGPU(t, proc, "0000:47:00.0", "GPU-a", 5)
	if _, err := gpuMinor(proc, "GPU-a"); err == nil || !strings.Contains(err.Error(), "two GPUs") {
		t.Errorf("%v", err)
	}
	writeFile(t, "GPU UUID: GPU-ab\n", proc, "driver/nvidia/gpus/0000:0f:00.0/information")
	if _, err := gpuMinor(proc, "GPU-ab"); err == nil || !strings.Contains(err.Error(), "lacks its minor number") {
		t.Errorf("%v", err)
	}
}

// Whatever the text, a parsed capability has numbers that the kernel accepts, and is what the driver
// would write for them.
func FuzzParseCapability(f *testing.F) {
	for _, seed := range []string{
		"DeviceFileMinor: 66\nDeviceFileMode: 292\nDeviceFileModify: 1\n", "DeviceFileMinor: -1", ":::\n", "DeviceFileMinor:\nDeviceFileMode:",
		"DeviceFileMinor: 66\x00\nDeviceFileMode: 292",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		got, err := parseCapability(text)
		if err != nil {
			return
		}
		modify := 0
		if got.modify {
			modify = 1
		}
		again, err := parseCapability(fmt.Sprintf("DeviceFileMinor: %d\nDeviceFileMode: %d\nDeviceFileModify: %d\n", got.minor, got.mode, modify))
		if err != nil || again != got || got.minor > maxMinor || got.mode > maxPermissions || strings.Contains(got.name(), "/") {
			t.Errorf("%q: %+v, %v, then %+v", text, got, err, again)
		}
	})
}

// Whatever the text, a parsed major number is one that the kernel assigns, and its line is in the text.
func FuzzParseMajor(f *testing.F) {
	for _, seed := range []string{procDevices, "Character devices:\n236 nvidia-caps", "Character devices:\n\n:\n236 nvidia-caps\n"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		major, err := parseMajor(text, capabilitiesDriver)
		if err == nil && (major == 0 || major > maxMajor || !strings.Contains(text, fmt.Sprintf("%d nvidia-caps", major))) {
			t.Errorf("%q: %d", text, major)
		}
	})
}
