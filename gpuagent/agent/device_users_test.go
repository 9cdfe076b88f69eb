// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"sluice.dev/gpuagent/host"
)

func TestDescribeUsers(t *testing.T) {
	pods := []corev1.Pod{{ObjectMeta: metav1.ObjectMeta{Namespace: "gpu-operator", Name: "nvidia-dcgm-x", UID: "1"}}}
	users := []host.DeviceUser{
		{PID: 7, Program: "nv-hostengine", Pods: []types.UID{"1"}},
		{PID: 8, Program: "python3.11", Pods: []types.UID{"gone"}},
		{PID: 9, Program: "nvsm_core", Service: "nvsm-core.service"},
	}
	want := "it is open in process nv-hostengine (7) of pod gpu-operator/nvidia-dcgm-x, process python3.11 (8) of a pod, " +
		"process nvsm_core (9) of the host's service nvsm-core.service: stop it with `systemctl stop nvsm-core.service`"
	if got := describeUsers(users, pods); got != want {
		t.Errorf("%s\nwant %s", got, want)
	}
	if got := describeUsers(append(append(users, users...), users...), nil); !strings.HasSuffix(got, ", and 3 more") {
		t.Error(got)
	}
	if got := describeUsers(nil, pods); !strings.Contains(got, "nvidia_drm") {
		t.Error(got)
	}
}
