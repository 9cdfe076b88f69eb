// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package hostile

import (
	"errors"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/v1alpha1"
)

// A member gets and deletes no volumes of others: not by a StatefulSet that takes over their claims by name, and not by mounting
// or cloning what an L2 researcher keeps.
var _ = attacks(
	setOverColleaguesClaim(row{name: "a StatefulSet that deletes a colleague's claim", roles: []role{l2}, want: "-0 (of {colleague}); use Retain"}, deleteClaims),
	setOverColleaguesClaim(row{name: "a StatefulSet that keeps a colleague's claim", roles: users, allowed: true}, ""),
	setOverColleaguesClaim(row{name: "one who may delete the claim", roles: []role{l1, editor}, allowed: true}, deleteClaims),
	row{
		class: volumeClaims, name: "a colleague's claim that is newer than the StatefulSet", roles: []role{l2}, want: "created by {colleague}, and no StatefulSet of {user} takes it over",
		attack: do("scale a StatefulSet to a claim that a colleague created meanwhile", adoptNewClaim), uncontrolled: "the next row is the same with an own claim",
	},
	row{
		class: volumeClaims, name: "an own claim of a StatefulSet", roles: []role{l2}, allowed: true,
		attack: do("a StatefulSet with the policy Delete makes a claim", adoptOwnClaim),
	},
	row{
		class: volumeClaims, name: "an L2 researcher's claim mounted", roles: []role{l1, editor, serviceAccount}, engines: everyEngine,
		attack: mount("an L2 researcher's claim", func(a *attacker) (string, error) { return claimOf(a.as(l2)) }), want: "only that user's pods mount it; it is shared by its label",
		control: mount("a shared claim", func(a *attacker) (string, error) { return claimOf(a.as(colleague)) }),
	},
	row{class: volumeClaims, name: "an own claim mounted", roles: users, engines: everyEngine, allowed: true, attack: mount("an own claim", claimOf)},
	row{
		class: volumeClaims, name: "a claim that does not exist yet", roles: users, engines: everyEngine, want: "there is no volume claim later; create the claim first",
		attack: mount("a claim of a later day", func(*attacker) (string, error) { return "later", nil }), control: mount("an own claim", claimOf),
	},
	row{
		class: volumeClaims, name: "a claim for which a colleague's pod waits", roles: []role{l2}, want: "of {colleague} waits for volume claim",
		attack: createAwaited("a colleague's", func(a *attacker) *attacker { return a.as(colleague) }), control: createAwaited("an own", func(a *attacker) *attacker { return a }),
	},
	row{
		class: volumeClaims, name: "a claim with the name of a colleague's StatefulSet", roles: []role{l2}, want: "of {colleague} makes its own volume claim",
		attack: createForSet("a colleague's", func(a *attacker) *attacker { return a.as(colleague) }), control: createForSet("an own", func(a *attacker) *attacker { return a }),
	},
	row{
		class: volumeClaims, name: "a StatefulSet with the claims of a colleague's", roles: []role{l2}, want: "spec.volumeClaimTemplates[0].metadata.name: StatefulSet my-",
		attack: createRivalSet("a colleague's", func(a *attacker) *attacker { return a.as(colleague) }), control: createRivalSet("an own", func(a *attacker) *attacker { return a }),
	},
	row{
		class: volumeClaims, name: "a claim template with an owner and a creator", roles: []role{l2}, allowed: true,
		attack: do("a StatefulSet makes a claim that names a ConfigMap as its controller and a colleague as its creator", makeOwnedClaim),
	},
	row{
		class: volumeClaims, name: "an L2 researcher's claim cloned", roles: []role{l1, editor, serviceAccount},
		attack: clone("an L2 researcher's claim", func(a *attacker) (string, error) { return claimOf(a.as(l2)) }), want: "spec.dataSource: volume claim",
		control: clone("an own claim", claimOf),
	},
	row{
		class: volumeClaims, name: "a colleague's claim shared or kept", roles: []role{l2}, attack: patch(colleagues("PersistentVolumeClaim"), `{"metadata":{"labels":{"sluice.dev/shared":"false"}}}`),
		want: "was created by {colleague}", control: patch(own("PersistentVolumeClaim"), `{"metadata":{"labels":{"sluice.dev/shared":"true"}}}`),
	},
	row{
		class: volumeClaims, name: "a claim in another's name", roles: []role{l2},
		attack:   create("PersistentVolumeClaim", `{metadata: {annotations: {sluice.dev/created-by: "{colleague}"}}}`),
		harmless: lacks(colleague.user("")),
	},
)

const deleteClaims = "persistentVolumeClaimRetentionPolicy: {whenDeleted: Delete, whenScaled: Delete}"

// withTemplate is the fragment of a StatefulSet with a claim template.
func withTemplate(more string) string {
	return "{spec: {volumeClaimTemplates: [{metadata: {name: data}, spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}], " + more + "}}"
}

func claimOf(a *attacker) (string, error) {
	claim, err := a.fixture("PersistentVolumeClaim")
	if err != nil {
		return "", err
	}
	return claim.GetName(), nil
}

// mount creates a pod that mounts a claim.
func mount(text string, claim func(*attacker) (string, error)) attempt {
	return do("mount "+text, func(a *attacker) (*unstructured.Unstructured, error) {
		name, err := claim(a)
		if err != nil {
			return nil, err
		}
		pod, err := a.ordinary("Pod", a.intruder(), "{spec: {volumes: [{name: data, persistentVolumeClaim: {claimName: "+name+"}}]}}")
		if err != nil {
			return nil, err
		}
		return pod, a.create(pod)
	})
}

// clone creates a claim with the content of another.
func clone(text string, claim func(*attacker) (string, error)) attempt {
	return do("clone "+text, func(a *attacker) (*unstructured.Unstructured, error) {
		name, err := claim(a)
		if err != nil {
			return nil, err
		}
		copied, err := a.ordinary("PersistentVolumeClaim", a.intruder(), "{spec: {dataSource: {kind: PersistentVolumeClaim, name: "+name+"}}}")
		if err != nil {
			return nil, err
		}
		return copied, a.create(copied)
	})
}

// createAwaited creates a claim under the name of a deleted one, for which a pod still waits.
func createAwaited(text string, owner func(*attacker) *attacker) attempt {
	return do("create a claim for which "+text+" pod waits", func(a *attacker) (*unstructured.Unstructured, error) {
		waiting := *owner(a)
		waiting.dry = false
		name := a.intruder() + "-" + string(waiting.role)
		if err := waiting.createClaim(name); err != nil {
			return nil, err
		}
		pod, err := waiting.ordinary("Pod", name, idle["Pod"], "{spec: {volumes: [{name: data, persistentVolumeClaim: {claimName: "+name+"}}]}}")
		if err != nil {
			return nil, err
		}
		if err := waiting.create(pod); err != nil {
			return nil, err
		}
		former := &corev1.PersistentVolumeClaim{}
		former.Name, former.Namespace = name, a.namespace
		if err := waiting.client.Delete(a.t.Context(), former); err != nil {
			return nil, err
		}
		a.eventually(func() error {
			if err := a.world.Admin.Get(a.t.Context(), client.ObjectKeyFromObject(former), former); !apierrors.IsNotFound(err) {
				return fmt.Errorf("the claim is still there: %w", err)
			}
			return nil
		})
		return a.claimNamed(name)
	})
}

// createForSet creates a claim with a name that a StatefulSet has for its second replica.
func createForSet(text string, owner func(*attacker) *attacker) attempt {
	return do("create a claim for "+text+" StatefulSet", func(a *attacker) (*unstructured.Unstructured, error) {
		author := *owner(a)
		author.dry = false
		set, err := author.ordinary("StatefulSet", a.intruder()+"-"+string(author.role), idle["StatefulSet"], withTemplate(""))
		if err != nil {
			return nil, err
		}
		if err := author.create(set); err != nil {
			return nil, err
		}
		return a.claimNamed("data-" + set.GetName() + "-1")
	})
}

// createRivalSet creates a StatefulSet whose claims have the names of another's.
func createRivalSet(text string, owner func(*attacker) *attacker) attempt {
	return do("create a StatefulSet with the claims of "+text, func(a *attacker) (*unstructured.Unstructured, error) {
		author := *owner(a)
		author.dry = false
		name := a.intruder() + "-" + string(author.role)
		set, err := author.ordinary("StatefulSet", "my-"+name, idle["StatefulSet"], withTemplate(""))
		if err != nil {
			return nil, err
		}
		if err := author.create(set); err != nil {
			return nil, err
		}
		rival, err := a.ordinary("StatefulSet", name, idle["StatefulSet"], strings.Replace(withTemplate(""), "name: data", "name: data-my", 1))
		if err != nil {
			return nil, err
		}
		return rival, a.create(rival)
	})
}

// makeOwnedClaim waits until a StatefulSet has made a claim whose template names another controller and creator.
func makeOwnedClaim(a *attacker) (*unstructured.Unstructured, error) {
	owner := &corev1.ConfigMap{}
	owner.Name, owner.Namespace = "kube-root-ca.crt", a.namespace
	if err := a.world.Admin.Get(a.t.Context(), client.ObjectKeyFromObject(owner), owner); err != nil {
		return nil, err
	}
	sender := *a
	sender.dry = false
	forged := a.expand(fmt.Sprintf(`name: data, annotations: {sluice.dev/created-by: "{colleague}"}, ownerReferences: [{apiVersion: v1, kind: ConfigMap, name: %s, uid: %s, controller: true}]`,
		owner.Name, owner.UID))
	set, err := sender.ordinary("StatefulSet", a.intruder(), strings.Replace(withTemplate(""), "name: data", forged, 1))
	if err != nil {
		return nil, err
	}
	if err := sender.create(set); err != nil {
		return nil, err
	}
	return set, a.hasOwnClaim(set.GetName(), func(*corev1.PersistentVolumeClaim) error { return nil })
}

// hasOwnClaim waits until a StatefulSet has a claim that passes a check, and reports an error unless it is the attacker's, and not shared.
func (a *attacker) hasOwnClaim(set string, check func(*corev1.PersistentVolumeClaim) error) error {
	claim := &corev1.PersistentVolumeClaim{}
	claim.Name, claim.Namespace = "data-"+set+"-0", a.namespace
	a.cleanUp(claim)
	a.eventually(func() error {
		if err := a.world.Admin.Get(a.t.Context(), client.ObjectKeyFromObject(claim), claim); err != nil {
			return err
		}
		return check(claim)
	})
	if creator := claim.Annotations[v1alpha1.AnnotationCreatedBy]; creator != a.role.user(a.namespace) || claim.Labels[v1alpha1.SharedClaimLabel] != "false" {
		return fmt.Errorf("the claim is of %q, with labels %v", creator, claim.Labels)
	}
	return nil
}

// claimNamed attempts to create a claim.
func (a *attacker) claimNamed(name string) (*unstructured.Unstructured, error) {
	claim, err := a.ordinary("PersistentVolumeClaim", name)
	if err != nil {
		return nil, err
	}
	return claim, a.create(claim)
}

// setOverColleaguesClaim is a row whose StatefulSet takes a colleague's claim for its own.
func setOverColleaguesClaim(r row, policy string) row {
	send := func(policy string) attempt {
		return do("create a StatefulSet with the name of a colleague's claim, "+policy, func(a *attacker) (*unstructured.Unstructured, error) {
			name := a.intruder()
			if err := a.as(colleague).createClaim("data-" + name + "-0"); err != nil {
				return nil, err
			}
			set, err := a.ordinary("StatefulSet", name, idle["StatefulSet"], withTemplate(policy))
			if err != nil {
				return nil, err
			}
			return set, a.create(set)
		})
	}
	r.class, r.attack, r.control = volumeClaims, send(policy), send("")
	return r
}

// createClaim creates a claim for real, until the end of the test.
func (a *attacker) createClaim(name string) error {
	claim, err := a.ordinary("PersistentVolumeClaim", name)
	if err != nil {
		return err
	}
	claim.SetNamespace(a.namespace)
	a.cleanUp(claim)
	return client.IgnoreAlreadyExists(a.retry(func() error { return a.client.Create(a.t.Context(), claim) }))
}

// startSet creates a StatefulSet for real that deletes its claims, without a pod at first, and scales it up after the step.
func (a *attacker) startSet(step func(name string) error) (*unstructured.Unstructured, error) {
	sender := *a
	sender.dry = false
	set, err := sender.ordinary("StatefulSet", a.intruder(), idle["StatefulSet"], withTemplate(deleteClaims))
	if err != nil {
		return nil, err
	}
	if err := sender.create(set); err != nil {
		return nil, err
	}
	if err := step(set.GetName()); err != nil {
		return nil, err
	}
	patch := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"replicas":1}}`))
	return set, a.retry(func() error { return sender.client.Patch(a.t.Context(), set, patch) })
}

// adoptNewClaim returns the refusal that the controller of a StatefulSet gets.
func adoptNewClaim(a *attacker) (*unstructured.Unstructured, error) {
	set, err := a.startSet(func(name string) error { return a.as(colleague).createClaim("data-" + name + "-0") })
	if err != nil {
		return nil, err
	}
	var refusal error
	a.eventually(func() error {
		var events corev1.EventList
		if err := a.world.Admin.List(a.t.Context(), &events, client.InNamespace(a.namespace)); err != nil {
			return err
		}
		for i := range events.Items {
			if event := &events.Items[i]; event.InvolvedObject.Name == set.GetName() && event.Reason == "FailedUpdate" {
				refusal = errors.New(event.Message)
				return nil
			}
		}
		return errors.New("the StatefulSet has no event of a refusal")
	})
	return set, refusal
}

// adoptOwnClaim waits until a StatefulSet has a claim that is its author's.
func adoptOwnClaim(a *attacker) (*unstructured.Unstructured, error) {
	set, err := a.startSet(func(string) error { return nil })
	if err != nil {
		return nil, err
	}
	return set, a.hasOwnClaim(set.GetName(), func(claim *corev1.PersistentVolumeClaim) error {
		if len(claim.OwnerReferences) == 0 {
			return fmt.Errorf("the StatefulSet does not own its claim: %+v", claim.ObjectMeta)
		}
		return nil
	})
}
