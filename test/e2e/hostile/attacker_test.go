// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package hostile

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"iter"
	"strings"
	"sync"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api"
	"sluice.dev/api/v1alpha1"
	"sluice.dev/test/clustertest"
)

// role is that of an attacker.
type role string

const (
	l2             role = "l2-researcher"
	l1             role = "l1-researcher"
	editor         role = "editor"
	engineer       role = "ml-engineer"
	manager        role = "research-manager"
	viewer         role = "viewer"
	owner          role = "owner"
	serviceAccount role = "service-account" // of the project, with the role editor
	dean           role = "department-administrator"
	colleague      role = "colleague"       // an L1 researcher whose objects are attacked
	neighbor       role = "neighbor"        // an L1 researcher of another project only
	outsider       role = "outsider"        // a user without any right
	namespaceAdmin role = "namespace-admin" // with more rights than any role of Sluice
	clusterAdmin   role = "cluster-admin"   // with all rights

	// Identities of the cluster. Any other begins with "system:", too.
	kubeScheduler   role = "system:kube-scheduler"
	claimController role = "system:serviceaccount:kube-system:resource-claim-controller"
	cronController  role = "system:serviceaccount:kube-system:cronjob-controller"
	kueueManager    role = "system:serviceaccount:kueue-system:kueue-controller-manager"
)

var (
	// everyRole are the roles in the order of the README.
	everyRole = []role{l2, l1, editor, serviceAccount, engineer, manager, viewer, owner, dean, neighbor, outsider, namespaceAdmin, clusterAdmin}
	// claimants may create ResourceClaims.
	claimants = []role{namespaceAdmin}
	// writers may create, change and delete workloads of their own.
	writers = []role{l2, l1, editor, serviceAccount, namespaceAdmin}
	// users are the writers by Sluice's roles.
	users = []role{l2, l1, editor, serviceAccount}
)

// user returns the user name of a role in a namespace.
func (r role) user(namespace string) string {
	switch {
	case strings.HasPrefix(string(r), "system:"), strings.Contains(string(r), "@"): // a user name
		return string(r)
	case r == serviceAccount:
		return "system:serviceaccount:" + namespace + ":robot"
	default:
		return string(r) + "@hostile.example"
	}
}

// membersOf returns the members of a project.
func membersOf(namespace string) []v1alpha1.Member {
	if namespace == neighborhood || namespace == elsewhere {
		return []v1alpha1.Member{{Kind: v1alpha1.MemberUser, Name: neighbor.user(""), Role: v1alpha1.RoleL1Researcher}}
	}
	list := []v1alpha1.Member{{Kind: v1alpha1.MemberUser, Name: colleague.user(""), Role: v1alpha1.RoleL1Researcher}}
	if namespace == ending {
		list = append(list, v1alpha1.Member{Kind: v1alpha1.MemberUser, Name: string(projectDean), Role: v1alpha1.RoleDepartmentAdministrator})
	}
	for _, r := range []role{l2, l1, editor, engineer, manager, viewer} {
		list = append(list, v1alpha1.Member{Kind: v1alpha1.MemberUser, Name: r.user(""), Role: v1alpha1.Role(r)})
	}
	return append(list, v1alpha1.Member{Kind: v1alpha1.MemberServiceAccount, Namespace: namespace, Name: "robot", Role: v1alpha1.RoleEditor})
}

func poolQuota(pool, guaranteed, limit string) v1alpha1.PoolQuota {
	return v1alpha1.PoolQuota{Name: pool, GPU: v1alpha1.GPUQuota{Guaranteed: resource.MustParse(guaranteed), Limit: resource.MustParse(limit)}}
}

// attacker is a user with a role who attempts a row.
type attacker struct {
	t         *testing.T
	world     *world
	role      role
	engine    engine
	namespace string // of the attacked project, which has the same name
	client    client.Client
	dry       bool
}

// clientFor returns the client of a user. All users share the kinds.
func (w *world) clientFor(user string) (client.Client, error) {
	get, _ := w.clients.LoadOrStore(user, sync.OnceValues(func() (client.Client, error) {
		scheme, err := api.NewScheme()
		if err != nil {
			return nil, err
		}
		var groups []string
		switch {
		case user == clusterAdmin.user(""):
			groups = []string{"system:masters"}
		case strings.HasPrefix(user, "system:serviceaccount:"):
			groups = []string{"system:serviceaccounts", "system:serviceaccounts:" + strings.Split(user, ":")[2]}
		}
		return client.New(w.AsUser(user, groups...), client.Options{Scheme: scheme, Mapper: w.mapper})
	}))
	return get.(func() (client.Client, error))()
}

func (w *world) attacker(t *testing.T, r role, e engine, namespace string) *attacker {
	t.Helper()
	as, err := w.clientFor(r.user(namespace))
	if err != nil {
		t.Fatal(err)
	}
	return &attacker{t: t, world: w, role: r, engine: e, namespace: namespace, client: as, dry: true}
}

// as returns a user with another role, at home: neighbors are in their own project.
func (a *attacker) as(r role) *attacker {
	namespace := a.namespace
	if r == neighbor {
		namespace = neighborhood
	}
	return a.world.attacker(a.t, r, a.engine, namespace)
}

// expand replaces {user}, {namespace} and so on.
func (a *attacker) expand(text string) string {
	return strings.NewReplacer(
		"{user}", a.role.user(a.namespace), "{role}", string(a.role),
		"{namespace}", a.namespace, "{project}", a.namespace, "{department}", faculty, "{pool}", pools[a.engine][0],
		"{neighbor}", neighborhood, "{elsewhere}", elsewhere, "{otherDepartment}", otherFaculty,
		"{colleague}", colleague.user(""),
	).Replace(text)
}

// intruder is the name of the objects that the attacker creates.
func (a *attacker) intruder() string {
	return "intruder-" + shortHash(a.t.Name())
}

func shortHash(text string) string {
	h := fnv.New32a()
	h.Write([]byte(text))
	return fmt.Sprintf("%08x", h.Sum32())
}

// idle are fragments by which fixtures run nothing.
var idle = map[string]string{
	"Pod": `{spec: {nodeSelector: {nowhere: "true"}}}`, "Job": "{spec: {suspend: true}}", "CronJob": "{spec: {suspend: true}}",
	"Deployment": "{spec: {replicas: 0}}", "StatefulSet": "{spec: {replicas: 0}}", "ReplicaSet": "{spec: {replicas: 0}}",
	"ReplicationController": "{spec: {replicas: 0}}",
}

// errFixture is the error of an attempt that lacks its object.
var errFixture = errors.New("no fixture")

// fixture creates an ordinary object that runs nothing, once for each user, and returns a copy.
func (a *attacker) fixture(kind string, fragments ...string) (*unstructured.Unstructured, error) {
	user := a.role.user(a.namespace)
	key := strings.Join(append([]string{a.namespace, user, kind}, fragments...), "\n")
	get, _ := a.world.fixtures.LoadOrStore(key, sync.OnceValues(func() (*unstructured.Unstructured, error) {
		name := fmt.Sprintf("%s-%s-%s", a.role, strings.ToLower(kind), shortHash(key))
		object, err := a.ordinary(kind, name, append([]string{idle[kind]}, fragments...)...)
		if err != nil {
			return nil, err
		}
		object.SetNamespace(a.namespace)
		// The test that comes first may end before others use the object.
		ctx, cancel := context.WithTimeout(context.Background(), setupTimeout)
		defer cancel()
		err = a.retry(func() error { return a.client.Create(ctx, object) })
		if apierrors.IsAlreadyExists(err) { // in a cluster of an earlier run
			err = a.world.Admin.Get(ctx, client.ObjectKeyFromObject(object), object)
		}
		if err != nil {
			return nil, fmt.Errorf("the fixture %s of %s: %w", kind, user, err)
		}
		return object, nil
	}))
	object, err := get.(func() (*unstructured.Unstructured, error))()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errFixture, err)
	}
	copied := object.DeepCopy()
	unstructured.RemoveNestedField(copied.Object, "metadata", "resourceVersion")
	return copied, nil
}

// cleanUp deletes an object at the end of the test.
func (a *attacker) cleanUp(object client.Object) {
	a.t.Cleanup(func() {
		ctx := context.Background() // the test context has ended
		object.SetFinalizers(nil)
		err := a.world.Admin.Delete(ctx, object, client.GracePeriodSeconds(1), client.PropagationPolicy("Background"))
		if client.IgnoreNotFound(err) != nil {
			a.t.Errorf("delete %s: %v", object.GetName(), err)
		}
	})
}

// eventually waits until the condition holds.
func (a *attacker) eventually(condition func() error) {
	a.t.Helper()
	clustertest.Eventually(a.t, condition)
}

// advanceTimeTo advances policy time. Only a row that runs alone may do that.
func (a *attacker) advanceTimeTo(at time.Time) {
	a.t.Helper()
	if err := a.world.clock.AdvanceTo(at); err != nil {
		a.t.Fatal(err)
	}
}

func splitDocuments(text string) iter.Seq[string] { return strings.SplitSeq(text, "\n---") }
