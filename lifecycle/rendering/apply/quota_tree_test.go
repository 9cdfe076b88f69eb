// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package apply_test

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"pgregory.net/rapid"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/lifecycle/rendering/apply"
	"sluice.dev/policies"
	"sluice.dev/policies/engine"
	"sluice.dev/policies/input"
)

// For all departments, projects and quotas, and for all sequences of pods: the objects that the
// built-in policies render never admit more than any limit above them. Guards invariant 3 of the design, for the figures; that they
// are counted atomically is shown on a real API server and on a real Kueue.
func TestRenderedObjectsNeverExceedLimits(t *testing.T) {
	rules, err := engine.New(engine.Options{Libraries: policies.Libraries()})
	if err != nil {
		t.Fatal(err)
	}
	for _, report := range rules.Update(policies.BuiltIn()) {
		for _, problem := range report.Problems {
			t.Fatal(problem)
		}
	}
	rapid.Check(t, func(rt *rapid.T) {
		tree := drawQuotaTree(rt)
		counters := tree.renderCounters(t, rt, rules)
		type pod struct {
			project, pool string
			milli         int64
			stays         bool
		}
		var running []pod
		for range rapid.IntRange(1, 60).Draw(rt, "events") {
			if len(running) > 0 && rapid.IntRange(0, 3).Draw(rt, "an end") == 0 {
				i := rapid.IntRange(0, len(running)-1).Draw(rt, "which")
				p := running[i]
				counters.charge(p.project, p.pool, -p.milli, p.stays)
				tree.recordPod(p.project, p.pool, -p.milli, p.stays)
				running = slices.Delete(running, i, i+1)
				continue
			}
			project := rapid.SampledFrom(tree.projects).Draw(rt, "project")
			if len(project.Spec.NodePools) == 0 {
				continue
			}
			p := pod{
				project.Name, rapid.SampledFrom(project.Spec.NodePools).Draw(rt, "pool").Name,
				rapid.Int64Range(1, 4000).Draw(rt, "milli"), rapid.Bool().Draw(rt, "not preemptible"),
			}
			if !counters.admits(p.project, p.pool, p.milli, p.stays) {
				continue
			}
			counters.charge(p.project, p.pool, p.milli, p.stays)
			tree.recordPod(p.project, p.pool, p.milli, p.stays)
			running = append(running, p)
			tree.checkLimits(rt)
		}
	})
}

// quotaTree is what people declared, and what runs of it.
type quotaTree struct {
	pools       map[string]*v1alpha1.NodePool
	departments []v1alpha1.Department
	projects    []v1alpha1.Project

	used, staying map[string]int64 // by project/pool
}

func drawQuotaTree(t *rapid.T) *quotaTree {
	tree := &quotaTree{pools: map[string]*v1alpha1.NodePool{}, used: map[string]int64{}, staying: map[string]int64{}}
	for name, scheduler := range map[string]v1alpha1.Scheduler{"plain": v1alpha1.SchedulerKube, "fair": v1alpha1.SchedulerKueue, "fair-too": v1alpha1.SchedulerKueue} {
		tree.pools[name] = &v1alpha1.NodePool{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec:       v1alpha1.NodePoolSpec{Scheduler: scheduler, NodeSelector: map[string]string{"pool": name}},
		}
	}
	for _, name := range slices.Sorted(maps.Keys(tree.pools)) {
		tree.pools[name].Status.GPUs = rapid.Int32Range(0, 16).Draw(t, "GPUs of "+name)
	}
	for i := range rapid.IntRange(1, 3).Draw(t, "departments") {
		d := v1alpha1.Department{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("d%d", i)}}
		if rapid.Bool().Draw(t, "oversubscribed") {
			d.Spec.Oversubscription = v1alpha1.OversubscriptionAllow
		}
		d.Spec.NodePools = tree.drawQuotas(t, func(string) (int64, int64) { return 16000, 16000 })
		left := map[string]int64{}
		for _, quota := range d.Spec.NodePools {
			left[quota.Name] = quota.GPU.Guaranteed.MilliValue()
		}
		for j := range rapid.IntRange(1, 3).Draw(t, "projects") {
			p := v1alpha1.Project{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%s-p%d", d.Name, j)}}
			p.Spec.Department = d.Name
			p.Spec.NodePools = tree.drawQuotas(t, func(pool string) (guaranteed, limit int64) {
				at := slices.IndexFunc(d.Spec.NodePools, func(q v1alpha1.PoolQuota) bool { return q.Name == pool })
				if at < 0 {
					return 0, -1
				}
				limit = d.Spec.NodePools[at].GPU.Limit.MilliValue()
				if d.Spec.Oversubscription == v1alpha1.OversubscriptionAllow {
					return limit, limit
				}
				return left[pool], limit
			})
			for _, quota := range p.Spec.NodePools {
				left[quota.Name] -= quota.GPU.Guaranteed.MilliValue()
			}
			tree.projects = append(tree.projects, p)
		}
		tree.departments = append(tree.departments, d)
	}
	return tree
}

// drawQuotas are quotas within the most of each pool; none in those of less than 0.
func (tree *quotaTree) drawQuotas(t *rapid.T, most func(pool string) (guaranteed, limit int64)) (quotas []v1alpha1.PoolQuota) {
	for _, pool := range slices.Sorted(maps.Keys(tree.pools)) {
		mostGuaranteed, mostLimit := most(pool)
		if mostLimit < 0 || rapid.IntRange(0, 3).Draw(t, "without "+pool) == 0 {
			continue
		}
		limit := rapid.Int64Range(0, mostLimit).Draw(t, "limit")
		guaranteed := rapid.Int64Range(0, min(limit, mostGuaranteed)).Draw(t, "guaranteed")
		weight := rapid.Int32Range(0, 3).Draw(t, "weight")
		quotas = append(quotas, v1alpha1.PoolQuota{Name: pool, GPU: v1alpha1.GPUQuota{
			Guaranteed: *resource.NewMilliQuantity(guaranteed, resource.DecimalSI),
			Limit:      *resource.NewMilliQuantity(limit, resource.DecimalSI), OverQuotaWeight: &weight,
		}})
	}
	return quotas
}

func (tree *quotaTree) recordPod(project, pool string, milli int64, stays bool) {
	tree.used[project+"/"+pool] += milli
	if stays {
		tree.staying[project+"/"+pool] += milli
	}
}

// checkLimits holds what runs against all that was declared above it.
func (tree *quotaTree) checkLimits(t *rapid.T) {
	inPool := map[string]int64{}
	promised := map[string]int64{}
	sound := map[string]bool{} // the guarantees are within the quota
	for name := range tree.pools {
		sound[name] = true
	}
	for i := range tree.departments {
		d := &tree.departments[i]
		for _, quota := range d.Spec.NodePools {
			used, guarantees, limits := int64(0), int64(0), int64(0)
			for j := range tree.projects {
				p := &tree.projects[j]
				if p.Spec.Department != d.Name {
					continue
				}
				used += tree.used[p.Name+"/"+quota.Name]
				for _, q := range p.Spec.NodePools {
					if q.Name == quota.Name {
						most := q.GPU.MaxInUse()
						guarantees, limits = guarantees+q.GPU.Guaranteed.MilliValue(), limits+most.MilliValue()
					}
				}
			}
			inPool[quota.Name] += used
			promised[quota.Name] += max(guarantees, quota.GPU.Guaranteed.MilliValue())
			most := quota.GPU.MaxInUse()
			limit := most.MilliValue()
			// What was promised in spite of the limit is had; and Kubernetes' own scheduler
			// knows no departments, which the department's condition Unsupported reports.
			if counted := tree.pools[quota.Name].Spec.Scheduler == v1alpha1.SchedulerKueue; used > max(limit, guarantees) && (counted || limits <= limit) {
				t.Fatalf("department %s uses %d of pool %s, and may %d", d.Name, used, quota.Name, limit)
			}
		}
	}
	for i := range tree.projects {
		p := &tree.projects[i]
		for _, quota := range p.Spec.NodePools {
			most := quota.GPU.MaxInUse()
			if got := tree.used[p.Name+"/"+quota.Name]; got > most.MilliValue() {
				t.Fatalf("project %s uses %d of pool %s, and may %d", p.Name, got, quota.Name, most.MilliValue())
			}
			if staying := tree.staying[p.Name+"/"+quota.Name]; staying > quota.GPU.Guaranteed.MilliValue() {
				t.Fatalf("project %s has %d of pool %s that cannot be preempted, and is guaranteed %d", p.Name, staying, quota.Name, quota.GPU.Guaranteed.MilliValue())
			}
		}
	}
	for name, pool := range tree.pools {
		if gpus := int64(pool.Status.GPUs) * 1000; pool.Spec.Scheduler == v1alpha1.SchedulerKueue && promised[name] <= gpus && inPool[name] > gpus {
			t.Fatalf("pool %s has %d, and %d is used", name, gpus, inPool[name])
		}
	}
}

// renderCounters returns the counters that the built-in policies render for the tree.
func (tree *quotaTree) renderCounters(t *testing.T, rt *rapid.T, rules *engine.Engine) *simulator {
	c := &simulator{
		pools: tree.pools, quotas: map[string][]simulatedQuota{}, parent: map[string]string{},
		nominal: map[string]int64{}, borrowed: map[string]int64{}, use: map[string]int64{},
	}
	find := func(name string) *v1alpha1.NodePool { return tree.pools[name] }
	subjects := []apply.Subject{}
	for _, pool := range tree.pools {
		subjects = append(subjects, apply.NodePoolSubject(pool, input.NewNodePool(pool, tree.departments, tree.projects)))
	}
	for i := range tree.departments {
		d := &tree.departments[i]
		subjects = append(subjects, apply.DepartmentSubject(d, input.NewDepartmentPools(d, tree.projects, find)))
		for j := range tree.projects {
			if p := &tree.projects[j]; p.Spec.Department == d.Name {
				subjects = append(subjects, apply.ProjectSubject(p, d, input.NewProjectPools(p, find)))
			}
		}
	}
	for _, subject := range subjects {
		wanted, err := apply.Render(t.Context(), rules, subject)
		if err != nil || len(wanted.Failures) > 0 {
			rt.Fatal(err, wanted.Failures)
		}
		for _, object := range wanted.Objects {
			c.addObject(rt, object)
		}
	}
	return c
}

// simulator count as a ResourceQuota and a tree of Kueue's cohorts do: a queue may
// have what is nominally its own and what it may borrow, and so may each cohort above
// it; the uppermost one has what is nominally in it.
type simulator struct {
	pools  map[string]*v1alpha1.NodePool
	quotas map[string][]simulatedQuota // by namespace
	parent map[string]string
	// By node and flavor.
	nominal, borrowed, use map[string]int64
}

type simulatedQuota struct {
	resource   string
	hard, used *int64
}

func (c *simulator) addObject(t *rapid.T, object *unstructured.Unstructured) {
	spec, _, _ := unstructured.NestedMap(object.Object, "spec")
	amount := func(value any) int64 {
		q, err := resource.ParseQuantity(fmt.Sprint(value))
		if err != nil {
			t.Fatal(object.GetName(), err)
		}
		return q.Value()
	}
	node := object.GetKind() + "/" + object.GetName()
	switch object.GetKind() {
	case "ResourceQuota":
		hard, _, _ := unstructured.NestedMap(spec, "hard")
		for name, value := range hard {
			most := amount(value)
			c.quotas[object.GetNamespace()] = append(c.quotas[object.GetNamespace()], simulatedQuota{name, &most, new(int64)})
		}
		return
	case "ClusterQueue":
		c.parent[node] = "Cohort/" + spec["cohortName"].(string)
	case "Cohort":
		c.parent[node] = "Cohort/" + spec["parentName"].(string)
	default:
		return
	}
	groups, _, _ := unstructured.NestedSlice(spec, "resourceGroups")
	for _, group := range groups {
		flavors, _, _ := unstructured.NestedSlice(group.(map[string]any), "flavors")
		for _, flavor := range flavors {
			of := flavor.(map[string]any)
			values, _, _ := unstructured.NestedSlice(of, "resources")
			first := values[0].(map[string]any)
			key := node + " " + of["name"].(string)
			c.nominal[key], c.borrowed[key] = amount(first["nominalQuota"]), amount(first["borrowingLimit"])
		}
	}
}

// subtreeNominal is what lies nominally in a node and below.
func (c *simulator) subtreeNominal(node, flavor string) int64 {
	sum := c.nominal[node+" "+flavor]
	for child, parent := range c.parent {
		if parent == node {
			sum += c.subtreeNominal(child, flavor)
		}
	}
	return sum
}

// chargedIn returns the resources in which a pod is charged.
func (c *simulator) chargedIn(pool string, stays bool) []string {
	unit := input.QuotaResource(c.pools[pool])
	names := []string{"requests." + string(unit)}
	if stays {
		names = append(names, "requests."+string(input.GuaranteedResource(c.pools[pool])))
	}
	return names
}

func (c *simulator) admits(project, pool string, milli int64, stays bool) bool {
	names := c.chargedIn(pool, stays)
	if c.pools[pool].Spec.Scheduler == v1alpha1.SchedulerKueue {
		for node := "ClusterQueue/" + project; node != ""; node = c.parent[node] {
			most := c.subtreeNominal(node, pool)
			if c.parent[node] != "" {
				most += c.borrowed[node+" "+pool]
			}
			if c.use[node+" "+pool]+milli > most {
				return false
			}
		}
	}
	for _, quota := range c.quotas[project] {
		if slices.Contains(names, quota.resource) && *quota.used+milli > *quota.hard {
			return false
		}
	}
	return true
}

func (c *simulator) charge(project, pool string, milli int64, stays bool) {
	names := c.chargedIn(pool, stays)
	if c.pools[pool].Spec.Scheduler == v1alpha1.SchedulerKueue {
		for node := "ClusterQueue/" + project; node != ""; node = c.parent[node] {
			c.use[node+" "+pool] += milli
		}
	}
	for _, quota := range c.quotas[project] {
		if slices.Contains(names, quota.resource) {
			*quota.used += milli
		}
	}
}
