// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api"
)

// clientFor is for a user's own configuration.
func clientFor(t *testing.T, config *rest.Config) client.Client {
	t.Helper()
	kinds, err := api.NewScheme()
	if err != nil {
		t.Fatal(err)
	}
	c, err := client.New(config, client.Options{Scheme: kinds})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// deviceClaimSpec asks for one device of each class.
func deviceClaimSpec(names ...string) resourcev1.ResourceClaimSpec {
	var spec resourcev1.ResourceClaimSpec
	for _, name := range names {
		spec.Devices.Requests = append(spec.Devices.Requests, resourcev1.DeviceRequest{
			Name: "r" + string(rune('a'+len(spec.Devices.Requests))), Exactly: &resourcev1.ExactDeviceRequest{DeviceClassName: name},
		})
	}
	return spec
}

// firstAvailableClaimSpec asks for one device, of the first class that can be had.
func firstAvailableClaimSpec(names ...string) resourcev1.ResourceClaimSpec {
	request := resourcev1.DeviceRequest{Name: "r"}
	for i, name := range names {
		request.FirstAvailable = append(request.FirstAvailable, resourcev1.DeviceSubRequest{Name: "s" + string(rune('a'+i)), DeviceClassName: name})
	}
	return resourcev1.ResourceClaimSpec{Devices: resourcev1.DeviceClaim{Requests: []resourcev1.DeviceRequest{request}}}
}

func newClaim(namespace string, spec resourcev1.ResourceClaimSpec) *resourcev1.ResourceClaim {
	return &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "claim"}, Spec: spec}
}

func newClaimTemplate(namespace string, spec resourcev1.ResourceClaimSpec) *resourcev1.ResourceClaimTemplate {
	return &resourcev1.ResourceClaimTemplate{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "claim"},
		Spec:       resourcev1.ResourceClaimTemplateSpec{Spec: spec},
	}
}

// A GPU cannot be had by a claim, where it would be charged to nobody: not in a
// project, and not outside of projects. Other devices can. Guards invariant 3 of
// the design.
func TestAdmissionPolicyRejectsGPUClaims(t *testing.T) {
	const ns, nic = "course-ml", "nic.example.org"
	persons := map[string]client.Client{
		"a researcher":              clientFor(t, researcherConfig(t, ns)),
		"a namespace administrator": clientFor(t, namespaceAdminConfig(t, ns)),
	}
	byClass := func(class string) *corev1.Pod {
		return newPod(ns, "by-class", func(p *corev1.Pod) {
			p.Spec.Containers[0].Resources.Limits = corev1.ResourceList{
				corev1.ResourceName(resourcev1.ResourceDeviceClassPrefix + class): resource.MustParse("1"),
			}
		})
	}
	const inProjects, outside = "would not be counted for the project", "request a project from your department"
	tests := map[string]struct {
		object client.Object
		says   string
	}{
		"a claim":                   {newClaim(ns, deviceClaimSpec("gpu.nvidia.com")), "DeviceClass gpu.nvidia.com: its GPUs " + inProjects},
		"a claim of a slice":        {newClaim(ns, deviceClaimSpec(nic, "mig.nvidia.com")), "DeviceClass mig.nvidia.com: "},
		"a claim with alternatives": {newClaim(ns, firstAvailableClaimSpec(nic, "vfio.gpu.nvidia.com")), inProjects},
		"a template of claims":      {newClaimTemplate(ns, deviceClaimSpec("gpu.nvidia.com")), inProjects},
		// The webhook is called before the admission policy.
		"the class as a resource":         {byClass("gpu.nvidia.com"), "does not count the devices of resource claims"},
		"a claim of another device":       {newClaim(ns, deviceClaimSpec(nic)), ""},
		"a template of another device's":  {newClaimTemplate(ns, firstAvailableClaimSpec(nic)), ""},
		"the channels between nodes":      {newClaim(ns, deviceClaimSpec("compute-domain-default-channel.nvidia.com")), ""},
		"outside: a claim":                {newClaim("default", deviceClaimSpec("gpu.nvidia.com")), "(DeviceClass gpu.nvidia.com), and namespace default is not a project's; " + outside},
		"outside: alternatives":           {newClaim("default", firstAvailableClaimSpec("gpu.nvidia.com", "mig.nvidia.com")), "(DeviceClass gpu.nvidia.com, mig.nvidia.com)"},
		"outside: a template":             {newClaimTemplate("default", deviceClaimSpec("mig.nvidia.com")), outside},
		"outside: of another device":      {newClaim("default", deviceClaimSpec(nic)), ""},
		"an exempt namespace: a claim":    {newClaim("kube-system", deviceClaimSpec("gpu.nvidia.com")), ""},
		"an exempt namespace: a template": {newClaimTemplate("kube-system", deviceClaimSpec("gpu.nvidia.com")), ""},
	}
	for who, person := range persons {
		for name, tc := range tests {
			by := person
			if tc.object.GetNamespace() != ns {
				by = sharedCluster.adminClient
			}
			t.Run(who+"/"+name, func(t *testing.T) {
				expectError(t, by.Create(t.Context(), tc.object.DeepCopyObject().(client.Object), client.DryRunAll), tc.says)
			})
		}
	}
}

// The scheduler's own claims are for pods that were counted by nvidia.com/gpu. A
// controller's are from a template, which may be older than the project.
func TestAdmissionPolicyGeneratedGPUClaims(t *testing.T) {
	const ns = "course-ml"
	for user, says := range map[string]string{
		"system:kube-scheduler": "",
		"system:serviceaccount:kube-system:resource-claim-controller": "would not be counted",
	} {
		t.Run(user, func(t *testing.T) {
			by := clientFor(t, impersonatedConfig(t, user, ns))
			expectError(t, by.Create(t.Context(), newClaim(ns, deviceClaimSpec("gpu.nvidia.com")), client.DryRunAll), says)
		})
	}
}

// expectError is that an attempt was refused with these words; without any, that it
// went through.
func expectError(t *testing.T, err error, says string) {
	t.Helper()
	if says == "" {
		if err != nil {
			t.Errorf("refused: %v", err)
		}
		return
	}
	if err := expectRefused(err, says); err != nil {
		t.Error(err)
	}
}
