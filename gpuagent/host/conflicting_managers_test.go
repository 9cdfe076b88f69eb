// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package host

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
)

func newPod(name, label, value string, c corev1.Container) corev1.Pod {
	if c.SecurityContext == nil {
		c.SecurityContext = &corev1.SecurityContext{Privileged: ptr.To(true)}
	}
	return corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "gpu-operator", Name: name, Labels: map[string]string{label: value}},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{c}},
	}
}

func withUID(uid types.UID, pod corev1.Pod) corev1.Pod {
	pod.UID = uid
	return pod
}

func TestFindConflictingManagers(t *testing.T) {
	const manager, driver = "NVIDIA's MIG manager", "NVIDIA's DRA driver with DynamicMIG"
	gate := func(value string) corev1.Container {
		return corev1.Container{Env: []corev1.EnvVar{{Name: "FEATURE_GATES", Value: value}}}
	}
	ended := newPod("m", "app", "nvidia-mig-manager", corev1.Container{})
	ended.Status.Phase = corev1.PodSucceeded
	tests := map[string]struct {
		pods      []corev1.Pod
		processes []Process
		want      map[string]string
	}{
		"none": {
			pods:      []corev1.Pod{newPod("p", "app", "nvidia-device-plugin-daemonset", corev1.Container{})},
			processes: []Process{{Command: []string{"nvidia-device-plugin"}}, {}, {Command: []string{"grep", "nvidia-mig-manager"}}},
		},
		"the MIG manager's pod": {
			pods: []corev1.Pod{newPod("m", "app", "nvidia-mig-manager", corev1.Container{})},
			want: map[string]string{manager: "pod gpu-operator/m"},
		},
		"one that has ended": {pods: []corev1.Pod{ended}},
		"its process": {
			processes: []Process{{Command: []string{"nvidia-mig-manager", "--x"}}},
			want:      map[string]string{manager: "process nvidia-mig-manager"},
		},
		"mig-parted by hand": {
			processes: []Process{{Command: []string{"nvidia-mig-parted", "apply"}}},
			want:      map[string]string{manager: "process nvidia-mig-parted"},
		},
		"a DRA driver": {pods: []corev1.Pod{newPod("d", "app.kubernetes.io/name", "dra-driver-nvidia-gpu",
			gate("DynamicMIG=false"))}},
		"that makes MIG devices": {pods: []corev1.Pod{newPod("d", "app.kubernetes.io/name", "dra-driver-nvidia-gpu",
			gate("X=false,DynamicMIG=true"))}, want: map[string]string{driver: "pod gpu-operator/d"}},
		"under its former name": {pods: []corev1.Pod{newPod("d", "app.kubernetes.io/name", "nvidia-dra-driver-gpu",
			gate("DynamicMIG=true,Y=true"))}, want: map[string]string{driver: "pod gpu-operator/d"}},
		"by an argument": {pods: []corev1.Pod{newPod("d", "app.kubernetes.io/name", "nvidia-dra-driver-gpu",
			corev1.Container{Args: []string{"--feature-gates=DynamicMIG=true"}})}, want: map[string]string{driver: "pod gpu-operator/d"}},
		"a gate that is not": {pods: []corev1.Pod{newPod("d", "app.kubernetes.io/name", "nvidia-dra-driver-gpu",
			gate("DynamicMIG=trueish"))}},
		"another driver's gate": {pods: []corev1.Pod{newPod("d", "app.kubernetes.io/name", "other", gate("DynamicMIG=true"))}},
		"its process by arguments": {processes: []Process{{Command: []string{
			"gpu-kubelet-plugin",
			"--feature-gates=DynamicMIG=true",
		}}}, want: map[string]string{driver: "process gpu-kubelet-plugin"}},
		"a label that a user has chosen": {pods: []corev1.Pod{newPod("u", "app", "nvidia-mig-manager",
			corev1.Container{SecurityContext: &corev1.SecurityContext{}})}},
		"a gate that a user has chosen": {pods: []corev1.Pod{newPod("u", "app.kubernetes.io/name", "nvidia-dra-driver-gpu",
			corev1.Container{SecurityContext: &corev1.SecurityContext{Privileged: ptr.To(false)}, Args: []string{"DynamicMIG=true"}})}},
		"with the one sufficient capability": {pods: []corev1.Pod{newPod("m", "app", "nvidia-mig-manager",
			corev1.Container{SecurityContext: &corev1.SecurityContext{Capabilities: &corev1.Capabilities{Add: []corev1.Capability{"SYS_ADMIN"}}}})}, want: map[string]string{manager: "pod gpu-operator/m"}},
		"the name of a user's process": {
			pods:      []corev1.Pod{withUID("u-1", newPod("u", "x", "y", corev1.Container{SecurityContext: &corev1.SecurityContext{}}))},
			processes: []Process{{Command: []string{"nvidia-mig-manager"}, Pods: []types.UID{"u-1"}}},
		},
		"a process in a privileged pod": {
			pods:      []corev1.Pod{withUID("u-1", newPod("u", "x", "y", corev1.Container{}))},
			processes: []Process{{Command: []string{"nvidia-mig-manager"}, Pods: []types.UID{"u-1"}}},
			want:      map[string]string{manager: "process nvidia-mig-manager"},
		},
		"a process in an unknown pod": {
			processes: []Process{{Command: []string{"nvidia-mig-manager"}, Pods: []types.UID{"u-9"}}},
			want:      map[string]string{manager: "process nvidia-mig-manager"},
		},
		"both, each once": {
			pods: []corev1.Pod{
				newPod("m", "app", "nvidia-mig-manager", corev1.Container{}),
				newPod("d", "app.kubernetes.io/name", "nvidia-dra-driver-gpu", gate("DynamicMIG=true")),
			},
			processes: []Process{{Command: []string{"mig-manager"}}},
			want:      map[string]string{manager: "pod gpu-operator/m", driver: "pod gpu-operator/d"},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			var got map[string]string
			for _, manager := range FindConflictingManagers(tc.pods, tc.processes) {
				if got == nil {
					got = map[string]string{}
				}
				got[manager.Name] = manager.Location
				if manager.Advice == "" || manager.String() == "" {
					t.Errorf("%s: no advice", manager.Name)
				}
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// The unit runs at boot before any pod, so that only its enabled unit shows that it will destroy the layout
// at the next boot.
func TestFindEnabledMIGManager(t *testing.T) {
	const unit, target = "nvidia-mig-manager.service", "/usr/lib/systemd/system/nvidia-mig-manager.service"
	type link struct{ path, target string }
	for name, tc := range map[string]struct {
		links []link
		want  string
	}{
		"not installed":      {},
		"enabled":            {[]link{{"multi-user.target.wants/" + unit, target}, {"nvidia-gpu-reset.target.wants/" + unit, target}}, "multi-user.target.wants"},
		"enabled for resets": {[]link{{"nvidia-gpu-reset.target.wants/" + unit, target}}, "nvidia-gpu-reset.target.wants"},
		"required":           {[]link{{"x.target.requires/" + unit, target}}, "x.target.requires"},
		"disabled":           {[]link{{unit + ".d/override.conf", "x"}, {"multi-user.target.wants/other.service", "x"}}, ""},
		"only linked":        {[]link{{unit, "/opt/" + unit}}, ""},
		"masked":             {[]link{{unit, "/dev/null"}, {"multi-user.target.wants/" + unit, target}}, ""},
		"another folder":     {[]link{{"multi-user.target.d/" + unit, target}}, ""},
		"a file":             {[]link{{"dangling.target.wants", "/nowhere"}}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			folder := t.TempDir()
			for _, link := range tc.links {
				path := filepath.Join(folder, link.path)
				if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.Symlink(link.target, path)); err != nil {
					t.Fatal(err)
				}
			}
			found, err := FindEnabledMIGManager(folder)
			if err != nil || (len(found) == 1) != (tc.want != "") || len(found) > 1 {
				t.Fatalf("%v, %v", found, err)
			}
			for _, text := range []string{tc.want, unit, "systemctl disable --now " + unit} {
				if len(found) == 1 && !strings.Contains(found[0].String(), text) {
					t.Errorf("%s lacks %s", found[0], text)
				}
			}
		})
	}
	if found, err := FindEnabledMIGManager(filepath.Join(t.TempDir(), "none")); len(found) != 0 || err != nil {
		t.Errorf("without systemd: %v, %v", found, err)
	}
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := FindEnabledMIGManager(file); err == nil {
		t.Error("no error for an unreadable folder")
	}
}
