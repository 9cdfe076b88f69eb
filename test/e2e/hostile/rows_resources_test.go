// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package hostile

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/v1alpha1"
)

// otherGPUNames are the names under which a device plugin offers the GPUs of dgx-2, and which no list knows.
var otherGPUNames = []string{"nvidia.com/a100", "nvidia.com/GA102GL_A10", "example.com/gpu", "amd.com/gpu", "nvidia.com/pgpu"}

// offerOtherNames makes dgx-2 of pool direct offer GPUs under other names, and devices that are none.
func (w *world) offerOtherNames(ctx context.Context) error {
	offered := map[string]string{"example.com/named": "4", "rdma/hca_shared_devices_a": "8"}
	for _, name := range otherGPUNames {
		offered[name] = "8"
	}
	raw, err := json.Marshal(map[string]any{"status": map[string]any{"capacity": offered, "allocatable": offered}})
	if err != nil {
		return err
	}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "dgx-2"}}
	if err := w.Admin.Status().Patch(ctx, node, client.RawPatch(types.MergePatchType, raw)); err != nil {
		return err
	}
	return eventually(ctx, func() error {
		var pool v1alpha1.NodePool
		if err := w.Admin.Get(ctx, client.ObjectKey{Name: "direct"}, &pool); err != nil {
			return err
		}
		for _, name := range otherGPUNames {
			if !slices.ContainsFunc(pool.Status.UnlistedResources, func(r v1alpha1.UnlistedResource) bool { return r.Name == name }) {
				return fmt.Errorf("node pool direct does not report %s: %+v", name, pool.Status.UnlistedResources)
			}
		}
		return nil
	})
}

const offeredByNodes = "nodes of node pool direct offer nvidia.com/a100, and no list knows whether it is a GPU"

// inInit is a fragment of a pod whose init container requests a resource.
const inInit = `{spec: {initContainers: [{name: prepare, image: any, resources: {limits: {nvidia.com/a100: "1"}}}]}}`

// A GPU under a name that Sluice does not know is charged or refused.
var _ = attacks(slices.Concat(
	underOtherNames(),
	[]row{
		{class: otherNames, name: "in an init container", engines: everyEngine, attack: create("Pod", inInit), want: offeredByNodes},
		{class: otherNames, name: "beside a GPU", engines: everyEngine, attack: createWith("Pod", aGPU, limit("nvidia.com/a100", "1")), want: offeredByNodes},
		{class: otherNames, name: "in a Job", engines: everyEngine, attack: createPods("Job", limit("nvidia.com/a100", "1")), want: offeredByNodes},
		{class: otherNames, name: "in a Deployment", engines: everyEngine, attack: createPods("Deployment", limit("nvidia.com/a100", "1")), want: offeredByNodes},
		{
			class: otherNames, name: "of a node pool's own name", attack: create("Pod", limit("example.com/named", "1")),
			harmless: onPod(func(pod *corev1.Pod) error {
				if charge := pod.Spec.Containers[0].Resources.Requests["sluice.dev/gpu-milli.direct"]; charge.Value() != 2000 {
					return fmt.Errorf("the pod is charged %s, want 2000", charge.String())
				}
				return nil
			}),
		},
		{
			class: otherNames, name: "of a node pool's own name, more than the limit", attack: create("Pod", limit("example.com/named", "21")),
			want: "the pod counts as 42 GPUs of node pool direct",
		},
		{
			class: otherNames, name: "of another node pool's name", engines: []engine{kueue, kai}, attack: create("Pod", limit("example.com/named", "1")),
			want: "the pod requests example.com/named, which is no GPU of node pool ",
		},
		{class: otherNames, name: "a network card", engines: everyEngine, allowed: true, attack: create("Pod", limit("rdma/hca_shared_devices_a", "1"))},
		{class: otherNames, name: "what no node offers", engines: everyEngine, allowed: true, attack: create("Pod", limit("example.com/nowhere", "1"))},
	},
)...)

func underOtherNames() (rows []row) {
	for _, name := range otherGPUNames {
		rows = append(rows, row{
			class: otherNames, name: name, engines: everyEngine, attack: create("Pod", limit(name, "1")),
			want: "nodes of node pool direct offer " + name + ", and no list knows whether it is a GPU",
		})
	}
	return rows
}
