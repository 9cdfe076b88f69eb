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

// clientFor returns a controller-runtime client for the configuration of a user.
func clientFor(t *testing.T, config *rest.Config) client.Client {
	t.Helper()
	scheme, err := api.NewScheme()
	if err != nil {
		t.Fatal(err)
	}
	c, err := client.New(config, client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// deviceClaimSpec requests one device of each DeviceClass.
func deviceClaimSpec(names ...string) resourcev1.ResourceClaimSpec {
	var spec resourcev1.ResourceClaimSpec
	for _, name := range names {
		spec.Devices.Requests = append(spec.Devices.Requests, resourcev1.DeviceRequest{
			Name: "r" + string(rune('a'+len(spec.Devices.Requests))), Exactly: &resourcev1.ExactDeviceRequest{DeviceClassName: name},
		})
	}
	return spec
}

// firstAvailableClaimSpec requests one device of the first DeviceClass that is available.
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

// Quotas cannot count the GPUs of resource claims. The admission policies therefore reject
// such claims inside and outside projects, and allow claims of other devices. Guards
// invariant 3 of the design.
func TestAdmissionPolicyRejectsGPUClaims(t *testing.T) {
	const ns, nic = "course-ml", "nic.example.org"
	clients := map[string]client.Client{
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
		object  client.Object
		message string
	}{
		"a claim":                   {newClaim(ns, deviceClaimSpec("gpu.nvidia.com")), "DeviceClass gpu.nvidia.com: its GPUs " + inProjects},
		"a claim of a MIG device":   {newClaim(ns, deviceClaimSpec(nic, "mig.nvidia.com")), "DeviceClass mig.nvidia.com: "},
		"a claim with alternatives": {newClaim(ns, firstAvailableClaimSpec(nic, "vfio.gpu.nvidia.com")), inProjects},
		"a template of claims":      {newClaimTemplate(ns, deviceClaimSpec("gpu.nvidia.com")), inProjects},
		// The webhook runs before the admission policy.
		"the class as a resource":         {byClass("gpu.nvidia.com"), "does not count the devices of resource claims"},
		"a claim of another device":       {newClaim(ns, deviceClaimSpec(nic)), ""},
		"a template of another device":    {newClaimTemplate(ns, firstAvailableClaimSpec(nic)), ""},
		"a channel between nodes":         {newClaim(ns, deviceClaimSpec("compute-domain-default-channel.nvidia.com")), ""},
		"outside: a claim":                {newClaim("default", deviceClaimSpec("gpu.nvidia.com")), "(DeviceClass gpu.nvidia.com), and namespace default is not a project's; " + outside},
		"outside: alternatives":           {newClaim("default", firstAvailableClaimSpec("gpu.nvidia.com", "mig.nvidia.com")), "(DeviceClass gpu.nvidia.com, mig.nvidia.com)"},
		"outside: a template":             {newClaimTemplate("default", deviceClaimSpec("mig.nvidia.com")), outside},
		"outside: another device":         {newClaim("default", deviceClaimSpec(nic)), ""},
		"an exempt namespace: a claim":    {newClaim("kube-system", deviceClaimSpec("gpu.nvidia.com")), ""},
		"an exempt namespace: a template": {newClaimTemplate("kube-system", deviceClaimSpec("gpu.nvidia.com")), ""},
	}
	for role, c := range clients {
		for name, tc := range tests {
			as := c
			if tc.object.GetNamespace() != ns {
				as = sharedCluster.adminClient
			}
			t.Run(role+"/"+name, func(t *testing.T) {
				expectError(t, as.Create(t.Context(), tc.object.DeepCopyObject().(client.Object), client.DryRunAll), tc.message)
			})
		}
	}
}

// The scheduler creates claims for pods that were counted by nvidia.com/gpu. The claims of a
// controller come from a template, which may be older than the project.
func TestAdmissionPolicyGeneratedGPUClaims(t *testing.T) {
	const ns = "course-ml"
	for user, message := range map[string]string{
		"system:kube-scheduler": "",
		"system:serviceaccount:kube-system:resource-claim-controller": "would not be counted",
	} {
		t.Run(user, func(t *testing.T) {
			as := clientFor(t, impersonatedConfig(t, user, ns))
			expectError(t, as.Create(t.Context(), newClaim(ns, deviceClaimSpec("gpu.nvidia.com")), client.DryRunAll), message)
		})
	}
}

// expectError fails the test unless the error contains the message. With an empty message it
// fails unless the request succeeded.
func expectError(t *testing.T, err error, message string) {
	t.Helper()
	if message == "" {
		if err != nil {
			t.Errorf("the request was rejected: %v", err)
		}
		return
	}
	if err := checkRejected(err, message); err != nil {
		t.Error(err)
	}
}
