// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package host

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// fakeDevices makes regular files that contain the numbers of the device, since only root may make
// device nodes.
type fakeDevices struct {
	denied, wrong bool
	made          []string
}

func (d *fakeDevices) Mknod(path string, mode uint32, device uint64) error {
	if d.denied {
		return &os.PathError{Op: "mknod", Path: path, Err: unix.EPERM}
	}
	d.made = append(d.made, path)
	minor := unix.Minor(device)
	if d.wrong {
		minor++
	}
	return os.WriteFile(path, fmt.Appendf(nil, "%d:%d", unix.Major(device), minor), fs.FileMode(mode&0o200))
}

func (d *fakeDevices) Lstat(path string) (FileStatus, error) {
	stat, err := kernelDevices{}.Lstat(path)
	if err != nil || stat.Mode&unix.S_IFMT != unix.S_IFREG {
		return stat, err
	}
	var major, minor uint32
	if text, err := os.ReadFile(path); err == nil {
		if _, err := fmt.Sscanf(string(text), "%d:%d", &major, &minor); err == nil {
			stat.Mode, stat.Device = unix.S_IFCHR|stat.Mode&maxPermissions, unix.Mkdev(major, minor)
		}
	}
	return stat, nil
}

const capabilityGPU = "GPU-5f6e2a04-0000-4000-8000-000000000001"

// newCapabilityNode returns a node with one GPU in MIG mode whose instance 2 has the compute instance 0.
func newCapabilityNode(t *testing.T) (*CapabilityNodes, *fakeDevices, []MIGDevice) {
	t.Helper()
	dir, devices := t.TempDir(), &fakeDevices{}
	c := &CapabilityNodes{
		Proc: filepath.Join(dir, "proc"), Host: filepath.Join(dir, "host"), Driver: filepath.Join(dir, "host/run/nvidia/driver"), System: devices,
	}
	writeFile(t, "Character devices:\n195 nvidia\n236 nvidia-caps\n\nBlock devices:\n", c.Proc, "devices")
	writeGPU(t, c.Proc, "0000:07:00.0", capabilityGPU, 3)
	writeFile(t, "DeviceFileMinor: 75\nDeviceFileMode: 292\nDeviceFileModify: 1\n", c.Proc, "driver/nvidia/capabilities/gpu3/mig/gi2/access")
	writeFile(t, "DeviceFileMinor: 76\nDeviceFileMode: 292\nDeviceFileModify: 1\n", c.Proc, "driver/nvidia/capabilities/gpu3/mig/gi2/ci0/access")
	for _, folder := range []string{c.Host, c.Driver} {
		if err := os.MkdirAll(filepath.Join(folder, "dev"), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	return c, devices, []MIGDevice{{Instance: 2, Computes: []uint32{0}}}
}

func requireNode(t *testing.T, c *CapabilityNodes, root, name, device string) {
	t.Helper()
	stat, err := c.system().Lstat(filepath.Join(root, "dev/nvidia-caps", name))
	if got := fmt.Sprintf("%d:%d %o", unix.Major(stat.Device), unix.Minor(stat.Device), stat.Mode); err != nil || got != device+" 20444" {
		t.Errorf("%s: %s, %v", name, got, err)
	}
}

// A container gets a MIG device only if both device nodes exist on the host, and with the container of
// the driver also there: the container toolkit omits missing ones with a warning, so that the pod sees
// the whole GPU alone.
func TestDeviceNodesAreMadeOnHostAndForDriverContainer(t *testing.T) {
	c, devices, list := newCapabilityNode(t)
	if made, err := c.Ensure(capabilityGPU, list); made != 4 || err != nil {
		t.Fatalf("%d, %v", made, err)
	}
	for _, root := range []string{c.Host, c.Driver} {
		requireNode(t, c, root, "nvidia-cap75", "236:75")
		requireNode(t, c, root, "nvidia-cap76", "236:76")
	}
	if made, err := c.Ensure(capabilityGPU, list); made != 0 || err != nil || len(devices.made) != 4 {
		t.Errorf("again: %d, %v, %v", made, err, devices.made)
	}
	files, err := os.ReadDir(filepath.Join(c.Host, "dev/nvidia-caps"))
	if err != nil || len(files) != 2 {
		t.Errorf("other files are left: %v, %v", files, err)
	}
}

// Without MIG devices there is nothing to read, also on a node whose driver has no capabilities.
func TestNoDeviceNodesWithoutMIGDevices(t *testing.T) {
	c := &CapabilityNodes{Proc: "/nowhere", Host: "/nowhere"}
	if made, err := c.Ensure(capabilityGPU, nil); made != 0 || err != nil {
		t.Errorf("%d, %v", made, err)
	}
}

func TestDeviceNodesWithDriverOnHost(t *testing.T) {
	c, _, list := newCapabilityNode(t)
	if err := os.RemoveAll(filepath.Join(c.Driver, "dev")); err != nil {
		t.Fatal(err)
	}
	if made, err := c.Ensure(capabilityGPU, list); made != 2 || err != nil {
		t.Errorf("%d, %v", made, err)
	}
	// The link would lead to the agent's own /dev.
	own := t.TempDir()
	if err := errors.Join(os.Mkdir(filepath.Join(own, "dev"), 0o700), os.RemoveAll(c.Driver), os.Symlink(own, c.Driver)); err != nil {
		t.Fatal(err)
	}
	if made, err := c.Ensure(capabilityGPU, list); made != 0 || err != nil {
		t.Errorf("through a link: %d, %v", made, err)
	}
}

// The kernel gives the driver another major number at each load, and the device nodes of the last one
// stay.
func TestWrongDeviceNodesAreReplaced(t *testing.T) {
	rewrite := func(path, text string) error {
		return errors.Join(os.Chmod(path, 0o600), os.WriteFile(path, []byte(text), 0o600), os.Chmod(path, 0o444)) //nolint:gosec // as the driver
	}
	for name, spoil := range map[string]func(path string) error{
		"major":    func(path string) error { return rewrite(path, "235:75") },
		"minor":    func(path string) error { return rewrite(path, "236:99") },
		"file":     func(path string) error { return rewrite(path, "x") },
		"mode":     func(path string) error { return os.Chmod(path, 0o600) },
		"link":     func(path string) error { return errors.Join(os.Remove(path), os.Symlink("/dev/null", path)) },
		"dangling": func(path string) error { return errors.Join(os.Remove(path), os.Symlink("nowhere", path)) },
		"leftover": func(path string) error {
			return errors.Join(os.Remove(path), os.WriteFile(filepath.Join(filepath.Dir(path), ".sluice-nvidia-cap75"), nil, 0o600))
		},
	} {
		t.Run(name, func(t *testing.T) {
			c, _, list := newCapabilityNode(t)
			if _, err := c.Ensure(capabilityGPU, list); err != nil {
				t.Fatal(err)
			}
			path := filepath.Join(c.Host, "dev/nvidia-caps/nvidia-cap75")
			if err := spoil(path); err != nil {
				t.Fatal(err)
			}
			if made, err := c.Ensure(capabilityGPU, list); made != 1 || err != nil {
				t.Errorf("%d, %v", made, err)
			}
			requireNode(t, c, c.Host, "nvidia-cap75", "236:75")
		})
	}
}

// Each error names the file and says what to do.
func TestDeviceNodeErrors(t *testing.T) {
	capabilities := "driver/nvidia/capabilities/gpu3/mig/gi2/"
	for name, tc := range map[string]struct {
		spoil func(*testing.T, *CapabilityNodes, *fakeDevices)
		want  string
	}{
		"the driver is not loaded": {func(t *testing.T, c *CapabilityNodes, _ *fakeDevices) {
			writeFile(t, "Character devices:\n195 nvidia\n", c.Proc, "devices")
		}, "no character devices nvidia-caps"},
		"no procfs": {func(t *testing.T, c *CapabilityNodes, _ *fakeDevices) {
			if err := os.RemoveAll(c.Proc); err != nil {
				t.Fatal(err)
			}
		}, "proc/devices: no such file"},
		"another GPU": {func(t *testing.T, c *CapabilityNodes, _ *fakeDevices) {
			writeGPU(t, c.Proc, "0000:07:00.0", "GPU-other", 3)
		}, "no GPU below"},
		"an instance that is gone": {func(t *testing.T, c *CapabilityNodes, _ *fakeDevices) {
			if err := os.RemoveAll(filepath.Join(c.Proc, capabilities)); err != nil {
				t.Fatal(err)
			}
		}, "gi2/access: no such file"},
		"a broken access file": {func(t *testing.T, c *CapabilityNodes, _ *fakeDevices) {
			writeFile(t, "DeviceFileMinor: 76\n", c.Proc, capabilities, "ci0/access")
		}, "ci0/access: it lacks the field DeviceFileMode"},
		"an endless access file": {func(t *testing.T, c *CapabilityNodes, _ *fakeDevices) {
			writeFile(t, strings.Repeat("x", maxProcFileSize+1), c.Proc, capabilities, "ci0/access")
		}, "more than 65536 bytes"},
		"the host's /dev is not mounted": {func(t *testing.T, c *CapabilityNodes, _ *fakeDevices) {
			if err := os.RemoveAll(filepath.Join(c.Host, "dev")); err != nil {
				t.Fatal(err)
			}
		}, "the host's /dev has to be mounted below"},
		"a link in place of the folder": {func(t *testing.T, c *CapabilityNodes, _ *fakeDevices) {
			if err := os.Symlink(t.TempDir(), filepath.Join(c.Host, "dev/nvidia-caps")); err != nil {
				t.Fatal(err)
			}
		}, "nvidia-caps is no folder"},
		"without privileges": {func(_ *testing.T, _ *CapabilityNodes, d *fakeDevices) {
			d.denied = true
		}, "has to run privileged"},
		"another node than the one made": {func(_ *testing.T, _ *CapabilityNodes, d *fakeDevices) {
			d.wrong = true
		}, "is device 236:76, not 236:75"},
		"the administrator makes the nodes": {func(t *testing.T, c *CapabilityNodes, _ *fakeDevices) {
			writeFile(t, "DeviceFileMinor: 75\nDeviceFileMode: 292\nDeviceFileModify: 0\n", c.Proc, capabilities, "access")
		}, "mknod -m 444 /dev/nvidia-caps/nvidia-cap75 c 236 75"},
	} {
		t.Run(name, func(t *testing.T) {
			c, devices, list := newCapabilityNode(t)
			tc.spoil(t, c, devices)
			if made, err := c.Ensure(capabilityGPU, list); made != 0 || !errors.Is(err, ErrDeviceNodes) || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%d, %v", made, err)
			}
		})
	}
}

// Device nodes that the administrator made are kept with their permissions.
func TestDeviceNodesOfAdministratorAreKept(t *testing.T) {
	c, _, list := newCapabilityNode(t)
	for i, file := range []string{"access", "ci0/access"} {
		writeFile(t, fmt.Sprintf("DeviceFileMinor: %d\nDeviceFileMode: 292\nDeviceFileModify: 0\n", 75+i), c.Proc,
			"driver/nvidia/capabilities/gpu3/mig/gi2", file)
		for _, root := range []string{c.Host, c.Driver} {
			writeFile(t, fmt.Sprintf("236:%d", 75+i), root, "dev/nvidia-caps", fmt.Sprintf("nvidia-cap%d", 75+i))
		}
	}
	if made, err := c.Ensure(capabilityGPU, list); made != 0 || err != nil {
		t.Errorf("%d, %v", made, err)
	}
}

// The kernel makes and shows the same device node.
func TestKernelDeviceNodes(t *testing.T) {
	c, _, list := newCapabilityNode(t)
	c.System = nil
	err := kernelDevices{}.Mknod(filepath.Join(t.TempDir(), "try"), unix.S_IFCHR|0o400, unix.Mkdev(1, 3))
	if errors.Is(err, fs.ErrPermission) {
		if _, err := c.Ensure(capabilityGPU, list); !errors.Is(err, fs.ErrPermission) || !strings.Contains(err.Error(), "has to run privileged") {
			t.Errorf("without the permission: %v", err)
		}
		t.Skipf("SKIPPED: this test needs root with CAP_MKNOD: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	if made, err := c.Ensure(capabilityGPU, list); made != 4 || err != nil {
		t.Fatalf("%d, %v", made, err)
	}
	requireNode(t, c, c.Host, "nvidia-cap75", "236:75")
	requireNode(t, c, c.Driver, "nvidia-cap76", "236:76")
	if made, err := c.Ensure(capabilityGPU, list); made != 0 || err != nil {
		t.Errorf("again: %d, %v", made, err)
	}
}
