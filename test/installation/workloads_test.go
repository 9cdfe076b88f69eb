// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package installation

import (
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/labels"

	"sluice.dev/api/config"
	"sluice.dev/api/v1alpha1"
	"sluice.dev/gpuagent/agent"
	lifecycleconfig "sluice.dev/lifecycle/config"
	"sluice.dev/manifests"
	"sluice.dev/policies/check"
	"sluice.dev/webhook"
)

// Every pod has what a pod of the cluster's own needs.
func TestPodsOfComponents(t *testing.T) {
	for _, overlay := range overlays {
		pods := podTemplates(t, overlay)
		var names []string
		for _, pod := range pods {
			names = append(names, pod.name)
			name := overlay + ": " + pod.name
			c := pod.spec.Containers[0]
			image := "sluice-" + pod.name
			if isRun(pod) {
				image = "sluice-webhook"
			}
			if len(pod.spec.Containers) != 1 || c.Name != pod.name || c.Image != image {
				t.Errorf("%s has the container %s of image %s, and %d in all", name, c.Name, c.Image, len(pod.spec.Containers))
			}
			if diff := cmp.Diff(map[string]string{"app.kubernetes.io/name": "sluice-" + pod.name, "app.kubernetes.io/part-of": "sluice"}, pod.metadata.Labels); diff != "" {
				t.Errorf("%s: labels (-want +got)\n%s", name, diff)
			}
			if pod.spec.ServiceAccountName != pod.name || pod.spec.AutomountServiceAccountToken == nil || !*pod.spec.AutomountServiceAccountToken {
				t.Errorf("%s has no token of account %s", name, pod.name)
			}
			if pod.spec.EnableServiceLinks == nil || *pod.spec.EnableServiceLinks {
				t.Errorf("%s has variables of other Services", name)
			}
			if want := map[string]string{v1alpha1.SystemNamespace: "system-cluster-critical", v1alpha1.AgentNamespace: "system-node-critical"}[pod.namespace]; pod.spec.PriorityClassName != want {
				t.Errorf("%s has priority %q, want %q", name, pod.spec.PriorityClassName, want)
			}
			if c.SecurityContext.ReadOnlyRootFilesystem == nil || !*c.SecurityContext.ReadOnlyRootFilesystem {
				t.Errorf("%s can write to its image", name)
			}
			if isRun(pod) { // it ends by itself
				if want := []string{"certificates", "--config=/etc/sluice/webhook.yaml"}; !slices.Equal(c.Args, want) {
					t.Errorf("%s has arguments %q", name, c.Args)
				}
				continue
			}
			for probe, got := range map[string]*corev1.Probe{"/healthz": c.LivenessProbe, "/healthz ": c.StartupProbe, "/readyz": c.ReadinessProbe} {
				if got == nil || got.HTTPGet == nil || got.HTTPGet.Path != strings.TrimSpace(probe) || got.HTTPGet.Port.StrVal != "health" || got.TimeoutSeconds < 2 {
					t.Errorf("%s: the probe of %s is %v", name, probe, got)
				}
			}
			checkMemory(t, name, c)
		}
		slices.Sort(names)
		want := []string{"certificates", "certificates", "gpuagent", "lifecycle", "webhook"}
		if overlay == manifests.Minimal {
			want = slices.Delete(want, 2, 3)
		}
		if diff := cmp.Diff(want, names); diff != "" {
			t.Errorf("%s (-want +got)\n%s", overlay, diff)
		}
	}
}

// isRun reports whether a pod is a run of the program that renews certificates: the webhook's, with its configuration.
func isRun(pod podTemplate) bool { return pod.name == "certificates" }

// checkMemory compares the limit of the garbage collector with those of the container. Memory outside of Go's heap
// takes at least a quarter, and the webhook and lifecycle have a child process.
func checkMemory(t *testing.T, name string, c corev1.Container) {
	t.Helper()
	var soft int64
	for _, variable := range c.Env {
		if variable.Name == "GOMEMLIMIT" {
			quantity, err := resource.ParseQuantity(strings.TrimSuffix(variable.Value, "B"))
			if err != nil {
				t.Fatal(err)
			}
			soft = quantity.Value()
		}
	}
	// The values that the programs set themselves without the variable.
	if want := map[string]int64{"webhook": 320 << 20, "lifecycle": 220 << 20, "gpuagent": 144 << 20}[c.Name]; soft != want {
		t.Errorf("%s: GOMEMLIMIT is %d, want %d", name, soft, want)
	}
	child := int64(0)
	if c.Name != "gpuagent" {
		child = int64(check.DefaultLimits.MemoryBytes)
	}
	if limit := c.Resources.Limits.Memory().Value(); limit < soft*4/3+child {
		t.Errorf("%s: the memory limit of %d MiB is too small for %d MiB of Go and %d MiB of the child process", name, limit>>20, soft>>20, child>>20)
	}
	if request := c.Resources.Requests.Memory(); request.IsZero() || c.Resources.Requests.Cpu().IsZero() || !c.Resources.Limits.Cpu().IsZero() {
		t.Errorf("%s: requests and limits are %v", name, c.Resources)
	}
}

// The configuration files are valid, and name the ports of the pods.
func TestConfigurationFiles(t *testing.T) {
	for _, overlay := range overlays {
		for _, pod := range podTemplates(t, overlay) {
			if isRun(pod) {
				continue
			}
			var files corev1.ConfigMap
			findObject(t, buildObjects(t, overlay), "ConfigMap", pod.name, &files)
			c := pod.spec.Containers[0]
			if want := []string{"--config=/etc/sluice/" + pod.name + ".yaml"}; !slices.Equal(c.Args, want) || files.Namespace != pod.namespace {
				t.Errorf("%s: %s has arguments %q, and its file is in %s", overlay, pod.name, c.Args, files.Namespace)
			}
			raw := []byte(files.Data[pod.name+".yaml"])
			t.Setenv("NODE_NAME", "dgx-1") // the agent's configuration names no node
			addresses := map[string]string{}
			var err error
			switch pod.name {
			case "webhook":
				var cfg webhook.Config
				err = config.Parse(raw, &cfg)
				addresses = map[string]string{"webhook": cfg.Listen, "metrics": cfg.Metrics, "health": cfg.Health}
			case "lifecycle":
				var cfg lifecycleconfig.Config
				err = config.Parse(raw, &cfg)
				addresses = map[string]string{"metrics": cfg.Metrics, "health": cfg.Health}
			case "gpuagent":
				var cfg agent.Config
				err = config.Parse(raw, &cfg)
				addresses = map[string]string{"metrics": cfg.Metrics, "health": cfg.Health}
			}
			if err != nil {
				t.Errorf("%s: %v", overlay, err)
			}
			ports := map[string]string{}
			for _, port := range c.Ports {
				ports[port.Name] = ":" + strconv.Itoa(int(port.ContainerPort))
			}
			if diff := cmp.Diff(addresses, ports); diff != "" {
				t.Errorf("%s: ports of %s (-file +pod)\n%s", overlay, pod.name, diff)
			}
			for name, address := range addresses {
				if !strings.Contains(string(raw), `"`+address+`"`) {
					t.Errorf("%s: the file of %s leaves out the address of %s", overlay, pod.name, name)
				}
			}
		}
	}
}

// Each Service selects the pods of its component, and each port exists there.
func TestServices(t *testing.T) {
	pods := podTemplates(t, manifests.Production)
	found := map[string]bool{}
	for _, object := range buildObjects(t, manifests.Production) {
		if object.GetKind() != "Service" {
			continue
		}
		var service corev1.Service
		decode(t, object, &service)
		found[service.Namespace+"/"+service.Name] = true
		selector := labels.SelectorFromSet(service.Spec.Selector)
		matching := slices.DeleteFunc(slices.Clone(pods), func(p podTemplate) bool {
			return p.namespace != service.Namespace || !selector.Matches(labels.Set(p.metadata.Labels))
		})
		if len(matching) != 1 {
			t.Errorf("Service %s selects %d components", service.Name, len(matching))
			continue
		}
		for _, port := range service.Spec.Ports {
			if !slices.ContainsFunc(matching[0].spec.Containers[0].Ports, func(p corev1.ContainerPort) bool { return p.Name == port.TargetPort.StrVal }) {
				t.Errorf("Service %s has port %s, which %s lacks", service.Name, port.Name, matching[0].name)
			}
		}
	}
	want := []string{"sluice-agent/gpuagent-metrics", "sluice-system/lifecycle-metrics", "sluice-system/webhook", "sluice-system/webhook-metrics"}
	if diff := cmp.Diff(want, slices.Sorted(maps.Keys(found))); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

// Two replicas are spread, updated and drained one after the other; one that ends has the time to answer its last
// requests. A single replica never blocks a drain.
func TestReplicas(t *testing.T) {
	for _, overlay := range overlays {
		for _, name := range []string{"webhook", "lifecycle"} {
			var deployment appsv1.Deployment
			findObject(t, buildObjects(t, overlay), "Deployment", name, &deployment)
			replicas, spec := *deployment.Spec.Replicas, deployment.Spec.Template.Spec
			if want := map[bool]int32{true: 1, false: 2}[overlay == manifests.Minimal]; replicas != want {
				t.Errorf("%s: %s has %d replicas, want %d", overlay, name, replicas, want)
			}
			budgets := 0
			for _, object := range buildObjects(t, overlay) {
				if object.GetKind() != "PodDisruptionBudget" || object.GetName() != name {
					continue
				}
				budgets++
				var budget policyv1.PodDisruptionBudget
				decode(t, object, &budget)
				if budget.Spec.MaxUnavailable.IntValue() != 1 || !maps.Equal(budget.Spec.Selector.MatchLabels, deployment.Spec.Selector.MatchLabels) {
					t.Errorf("%s: the budget of %s is %+v", overlay, name, budget.Spec)
				}
			}
			if budgets != int(replicas)-1 {
				t.Errorf("%s: %s has %d disruption budgets with %d replicas", overlay, name, budgets, replicas)
			}
			update := deployment.Spec.Strategy.RollingUpdate
			if update.MaxUnavailable.IntValue() != 0 || update.MaxSurge.IntValue() != 1 {
				t.Errorf("%s: the update of %s is %+v", overlay, name, update)
			}
			for _, constraint := range spec.TopologySpreadConstraints {
				if !maps.Equal(constraint.LabelSelector.MatchLabels, deployment.Spec.Selector.MatchLabels) {
					t.Errorf("%s: %s spreads %v", overlay, name, constraint.LabelSelector)
				}
			}
			if len(spec.TopologySpreadConstraints) == 0 {
				t.Errorf("%s: %s is not spread", overlay, name)
			}
			// The longest request of the webhook takes 10 s after the drain.
			var files corev1.ConfigMap
			var cfg webhook.Config
			findObject(t, buildObjects(t, overlay), "ConfigMap", "webhook", &files)
			if err := config.Parse([]byte(files.Data["webhook.yaml"]), &cfg); err != nil {
				t.Fatal(err)
			}
			if need := cfg.DrainPeriod.Duration + 10*time.Second; time.Duration(*spec.TerminationGracePeriodSeconds)*time.Second < need {
				t.Errorf("%s: %s has %d s to end, and needs %s", overlay, name, *spec.TerminationGracePeriodSeconds, need)
			}
		}
	}
}

// Where the API server limits the critical priority classes, each namespace has a quota for that of its pods.
func TestQuotaForCriticalPods(t *testing.T) {
	for _, pod := range podTemplates(t, manifests.Production) {
		allowed := false
		for _, object := range buildObjects(t, manifests.Production) {
			if object.GetKind() != "ResourceQuota" || object.GetNamespace() != pod.namespace {
				continue
			}
			var quota corev1.ResourceQuota
			decode(t, object, &quota)
			for _, term := range quota.Spec.ScopeSelector.MatchExpressions {
				allowed = allowed || term.ScopeName == corev1.ResourceQuotaScopePriorityClass && slices.Contains(term.Values, pod.spec.PriorityClassName)
			}
			if n := quota.Spec.Hard[corev1.ResourcePods]; n.Value() < 100_000 {
				t.Errorf("%s: the quota limits the pods to %s", pod.namespace, n.String())
			}
		}
		if !allowed {
			t.Errorf("%s: no quota for priority class %s", pod.namespace, pod.spec.PriorityClassName)
		}
	}
}
