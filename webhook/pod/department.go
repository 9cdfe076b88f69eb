// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/resource"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/api/workload"
	"sluice.dev/webhook/evaluation"
)

// departmentDenial returns why a pod, as JSON, has no room in the limit of its department; empty if it has room. The
// room is some seconds old and counts pods on nodes: lifecycle ends pods that are admitted above the limit. Without the
// denial a ReplicaSet would create such a pod again at once and without end; a controller whose pod is refused waits
// longer each time.
func departmentDenial(tenant *evaluation.Tenant, raw []byte) string {
	if len(tenant.DepartmentRoom) == 0 || !bytes.Contains(raw, []byte(v1alpha1.ResourceGPUMilli)) {
		return ""
	}
	var pod corev1.Pod
	if err := json.Unmarshal(raw, &pod); err != nil {
		return "" // the API server decoded it before
	}
	for name, requested := range resource.PodRequests(&pod, resource.PodResourcesOptions{}) {
		pool, _ := strings.CutPrefix(string(name), string(v1alpha1.ResourceGPUMilli)+".")
		room, counted := tenant.DepartmentRoom[pool]
		if charge := workload.Milli(requested.Value()); counted && charge > room {
			return fmt.Sprintf("the limit of department %s in node pool %s leaves %s, and the pod requests %s; "+
				"create it again when other work of the department has ended, or ask an administrator of the department",
				tenant.Department, pool, room.Describe(), charge.Describe())
		}
	}
	return ""
}
