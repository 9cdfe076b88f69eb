// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package host

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// ErrDeviceNodes reports that a MIG device lacks a device node on the host. A container that gets the
// device sees only the whole GPU, or is not created.
var ErrDeviceNodes = errors.New("device nodes of MIG devices are missing")

// CapabilityNodes makes the device nodes of MIG devices, /dev/nvidia-caps/nvidia-cap<minor>. A container
// opens a MIG device through two of them, of its GPU instance and of its compute instance. The driver
// describes them in procfs and leaves their creation to programs. NVIDIA's library creates them in the
// container that created the instance, where no other container sees them.
type CapabilityNodes struct {
	// Proc is the root of the host's procfs. NVIDIA's runtime may hide the driver's files in a
	// container's own.
	Proc string
	// Host is the host's root folder. Its folder dev gets the device nodes.
	Host string
	// Driver is the root folder of the container that contains the driver. Its folder dev gets the
	// same device nodes, if the folder exists: the driver may also be installed on the host.
	Driver string
	// System makes the device nodes. Default: the kernel.
	System DeviceSystem
}

// DeviceSystem makes and inspects device nodes. Only root may make them.
type DeviceSystem interface {
	// Mknod creates a device node.
	Mknod(path string, mode uint32, device uint64) error
	// Lstat returns the properties of a file.
	Lstat(path string) (FileStatus, error)
}

// FileStatus has the properties of a file that matter for device nodes. Its types are the same on all systems, those of
// [unix.Stat_t] are not.
type FileStatus struct {
	// Mode has the type and the permissions.
	Mode uint32
	// Device is the number of a device node.
	Device uint64
}

// kernelDevices is the DeviceSystem of the kernel.
type kernelDevices struct{}

func (kernelDevices) Mknod(path string, mode uint32, device uint64) error {
	if err := unix.Mknod(path, mode, int(device)); err != nil { //nolint:gosec // The kernel's device numbers have 32 bits.
		return &os.PathError{Op: "mknod", Path: path, Err: err}
	}
	return nil
}

func (kernelDevices) Lstat(path string) (FileStatus, error) {
	var stat unix.Stat_t
	if err := unix.Lstat(path, &stat); err != nil {
		return FileStatus{}, &os.PathError{Op: "lstat", Path: path, Err: err}
	}
	return FileStatus{Mode: uint32(stat.Mode), Device: uint64(stat.Rdev)}, nil //nolint:unconvert,gosec // Other systems have other types.
}

// MIGDevice identifies a GPU instance by the driver's identifiers.
type MIGDevice struct {
	Instance uint32
	Computes []uint32
}

// Ensure creates the missing device nodes of a GPU's MIG devices, corrects those of an earlier load of
// the driver, and verifies them all. It returns how many it made. The error wraps [ErrDeviceNodes].
func (c *CapabilityNodes) Ensure(gpu string, devices []MIGDevice) (made int, err error) {
	if len(devices) == 0 {
		return 0, nil
	}
	major, capabilities, err := c.readCapabilities(gpu, devices)
	if err != nil {
		return 0, fmt.Errorf("%w: read the capabilities of GPU %s: %w", ErrDeviceNodes, gpu, err)
	}
	folders, err := c.folders()
	if err != nil {
		return 0, fmt.Errorf("%w: %w", ErrDeviceNodes, err)
	}
	for _, folder := range folders {
		for _, each := range capabilities {
			changed, err := c.ensureNode(filepath.Join(folder, each.name()), unix.Mkdev(major, each.minor), each)
			if err != nil {
				return made, fmt.Errorf("%w: GPU %s: %w", ErrDeviceNodes, gpu, err)
			}
			if changed {
				made++
			}
		}
	}
	return made, nil
}

// readCapabilities returns the capabilities of MIG devices and their major number.
func (c *CapabilityNodes) readCapabilities(gpu string, devices []MIGDevice) (major uint32, list []capability, err error) {
	text, err := readProcFile(filepath.Join(c.Proc, "devices"))
	if err != nil {
		return 0, nil, err
	}
	if major, err = parseMajor(text, capabilitiesDriver); err != nil {
		return 0, nil, fmt.Errorf("read %s: %w", filepath.Join(c.Proc, "devices"), err)
	}
	minor, err := gpuMinor(c.Proc, gpu)
	if err != nil {
		return 0, nil, err
	}
	for _, device := range devices {
		folder := filepath.Join(c.Proc, "driver/nvidia/capabilities", fmt.Sprintf("gpu%d/mig/gi%d", minor, device.Instance))
		paths := []string{filepath.Join(folder, "access")}
		for _, compute := range device.Computes {
			paths = append(paths, filepath.Join(folder, fmt.Sprintf("ci%d", compute), "access"))
		}
		for _, path := range paths {
			each, err := readCapability(path)
			if err != nil {
				return 0, nil, err
			}
			list = append(list, each)
		}
	}
	return major, list, nil
}

// folders returns the folders for device nodes, and creates those that are missing.
func (c *CapabilityNodes) folders() (list []string, err error) {
	if err := requireFolder(filepath.Join(c.Host, "dev")); err != nil {
		return nil, fmt.Errorf("the host's /dev has to be mounted below %s: %w", c.Host, err)
	}
	devs := []string{filepath.Join(c.Host, "dev")}
	if c.Driver != "" && requireFolder(c.Driver) == nil && requireFolder(filepath.Join(c.Driver, "dev")) == nil {
		devs = append(devs, filepath.Join(c.Driver, "dev"))
	}
	for _, dev := range devs {
		folder := filepath.Join(dev, capabilitiesDriver)
		if err := os.Mkdir(folder, 0o755); err != nil && !errors.Is(err, fs.ErrExist) { //nolint:gosec // as nvidia-modprobe does
			return nil, err
		}
		if err := requireFolder(folder); err != nil {
			return nil, err
		}
		list = append(list, folder)
	}
	return list, nil
}

// requireFolder returns an error for anything but a folder. A symbolic link would be followed in the
// agent's own file system.
func requireFolder(path string) error {
	info, err := os.Lstat(path)
	if err != nil {
		return err
	}
	if !info.IsDir() {
		return fmt.Errorf("%s is no folder", path)
	}
	return nil
}

// ensureNode creates a device node if it is missing or wrong, and verifies it. Another node at its place
// is replaced in one step, so that no program finds none.
func (c *CapabilityNodes) ensureNode(path string, device uint64, want capability) (made bool, err error) {
	problem, err := c.checkNode(path, device, want)
	if err != nil || problem == "" {
		return false, err
	}
	if !want.modify {
		return false, fmt.Errorf("%s %s, and the driver's parameter NVreg_ModifyDeviceFiles=0 forbids programs to change it: create it on the "+
			"host with mknod -m %o /dev/%s/%s c %d %d", path, problem, want.mode, capabilitiesDriver, want.name(), unix.Major(device), want.minor)
	}
	temporary := filepath.Join(filepath.Dir(path), ".sluice-"+filepath.Base(path))
	if err := os.Remove(temporary); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, err
	}
	if err := c.system().Mknod(temporary, unix.S_IFCHR|want.mode, device); err != nil {
		if errors.Is(err, fs.ErrPermission) {
			err = fmt.Errorf("%w; the agent has to run privileged", err)
		}
		return false, err
	}
	// The umask does not apply to chmod.
	if err := errors.Join(os.Chmod(temporary, fs.FileMode(want.mode)), os.Rename(temporary, path)); err != nil {
		return false, errors.Join(err, os.Remove(temporary))
	}
	if problem, err = c.checkNode(path, device, want); err == nil && problem != "" {
		err = fmt.Errorf("%s was created, and %s", path, problem)
	}
	return err == nil, err
}

// checkNode returns what is wrong with a device node; "" for nothing. The permissions matter only if
// programs may change them.
func (c *CapabilityNodes) checkNode(path string, device uint64, want capability) (problem string, err error) {
	stat, err := c.system().Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "does not exist", nil
	case err != nil:
		return "", err
	case stat.Mode&unix.S_IFMT != unix.S_IFCHR:
		return "is no character device", nil
	case stat.Device != device:
		return fmt.Sprintf("is device %d:%d, not %d:%d", unix.Major(stat.Device), unix.Minor(stat.Device), unix.Major(device), want.minor), nil
	case stat.Mode&maxPermissions != want.mode && want.modify:
		return fmt.Sprintf("has the mode %#o, not %#o", stat.Mode&maxPermissions, want.mode), nil
	}
	return "", nil
}

func (c *CapabilityNodes) system() DeviceSystem {
	if c.System == nil {
		return kernelDevices{}
	}
	return c.System
}
