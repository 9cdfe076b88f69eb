// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package host

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// capability is a right on a GPU or compute instance, as the driver describes it in an access file. A
// container has the right if it can open the capability's device node.
type capability struct {
	minor uint32
	// mode holds the permissions of the device node.
	mode uint32
	// modify reports whether programs may create and change the device node.
	modify bool
}

// name returns the name of the device node.
func (c capability) name() string { return fmt.Sprintf("nvidia-cap%d", c.minor) }

// Limits of the kernel, and of the files of the driver, which have at most a few hundred bytes.
const (
	maxMajor        = 1<<12 - 1
	maxMinor        = 1<<20 - 1
	maxPermissions  = 0o777
	maxProcFileSize = 64 << 10
)

// readProcFile reads a small file of procfs.
func readProcFile(path string) (string, error) {
	file, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer file.Close()
	raw, err := io.ReadAll(io.LimitReader(file, maxProcFileSize+1))
	if err == nil && len(raw) > maxProcFileSize {
		err = fmt.Errorf("read %s: it has more than %d bytes", path, maxProcFileSize)
	}
	return string(raw), err
}

// readCapability reads an access file of the driver.
func readCapability(path string) (capability, error) {
	text, err := readProcFile(path)
	if err != nil {
		return capability{}, err
	}
	c, err := parseCapability(text)
	if err != nil {
		return capability{}, fmt.Errorf("read %s: %w", path, err)
	}
	return c, nil
}

// parseCapability parses the text of an access file. It has one field a line, in decimal:
//
//	DeviceFileMinor: 66
//	DeviceFileMode: 292
//	DeviceFileModify: 1
//
// It ignores other fields, which later drivers may add. A driver that omits DeviceFileModify allows
// programs to create the device node.
func parseCapability(text string) (capability, error) {
	fields, err := parseFields(text, "DeviceFileMinor", "DeviceFileMode", "DeviceFileModify")
	if err != nil {
		return capability{}, err
	}
	if _, ok := fields["DeviceFileModify"]; !ok {
		fields["DeviceFileModify"] = "1"
	}
	var c capability
	var modify uint32
	for _, field := range []struct {
		name string
		into *uint32
		most uint32
	}{{"DeviceFileMinor", &c.minor, maxMinor}, {"DeviceFileMode", &c.mode, maxPermissions}, {"DeviceFileModify", &modify, 1}} {
		text, ok := fields[field.name]
		if !ok {
			return capability{}, errors.New("it lacks the field " + field.name)
		}
		if *field.into, err = parseNumber(text, field.most); err != nil {
			return capability{}, fmt.Errorf("%s: %w", field.name, err)
		}
	}
	c.modify = modify == 1
	return c, nil
}

// parseFields returns the named fields of a text with lines of the form "name: value".
func parseFields(text string, names ...string) (map[string]string, error) {
	fields := map[string]string{}
	for line := range strings.Lines(text) {
		name, value, ok := strings.Cut(line, ":")
		if !ok {
			continue
		}
		for _, known := range names {
			if strings.TrimSpace(name) != known {
				continue
			}
			if _, twice := fields[known]; twice {
				return nil, errors.New("it has the field " + known + " twice")
			}
			fields[known] = strings.TrimSpace(value)
		}
	}
	return fields, nil
}

// parseNumber parses a decimal number of digits only.
func parseNumber(text string, most uint32) (uint32, error) {
	n, err := strconv.ParseUint(text, 10, 32)
	if err != nil || n > uint64(most) || strings.HasPrefix(text, "+") {
		return 0, fmt.Errorf("%.40q is not a number from 0 to %d", text, most)
	}
	return uint32(n), nil
}

// capabilitiesDriver is the name of the character devices of capabilities.
const capabilitiesDriver = "nvidia-caps"

// parseMajor returns the major number of a kind of character devices in the text of /proc/devices. The
// kernel assigns the number when the driver is loaded, so that it may differ after each load.
func parseMajor(text, name string) (major uint32, err error) {
	inSection := false
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if strings.HasSuffix(line, ":") {
			inSection = line == "Character devices:"
			continue
		}
		number, found, _ := strings.Cut(line, " ")
		if !inSection || found != name {
			continue
		}
		if major != 0 {
			return 0, fmt.Errorf("it lists %s twice", name)
		}
		if major, err = parseNumber(number, maxMajor); err != nil {
			return 0, fmt.Errorf("the major number of %s: %w", name, err)
		}
		if major == 0 {
			return 0, fmt.Errorf("the major number of %s is 0", name)
		}
	}
	if major == 0 {
		return 0, fmt.Errorf("it lists no character devices %s, so that the driver is not loaded or has no devices for capabilities", name)
	}
	return major, nil
}

// gpuMinor returns a GPU's minor number, by which the driver names the folder of its capabilities. The
// driver lists it in /proc/driver/nvidia/gpus/<PCI address>/information.
func gpuMinor(proc, uuid string) (uint32, error) {
	folder := filepath.Join(proc, "driver", "nvidia", "gpus")
	entries, err := os.ReadDir(folder)
	if err != nil {
		return 0, err
	}
	found := ""
	for _, entry := range entries {
		text, err := readProcFile(filepath.Join(folder, entry.Name(), "information"))
		if err != nil {
			return 0, err
		}
		fields, err := parseFields(text, "GPU UUID", "Device Minor")
		if err != nil {
			return 0, fmt.Errorf("read the information of GPU %s: %w", entry.Name(), err)
		}
		if fields["GPU UUID"] != uuid {
			continue
		}
		if found != "" {
			return 0, fmt.Errorf("two GPUs below %s have the UUID %s", folder, uuid)
		}
		if found = fields["Device Minor"]; found == "" {
			return 0, fmt.Errorf("the information of GPU %s lacks its minor number", entry.Name())
		}
	}
	if found == "" {
		return 0, fmt.Errorf("no GPU below %s has the UUID %s", folder, uuid)
	}
	return parseNumber(found, maxMinor)
}
