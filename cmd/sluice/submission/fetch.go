// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package submission

import (
	"fmt"
	"net/url"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/utils/ptr"

	"sluice.dev/api/v1alpha1"
)

// ImagesConfigMap is a ConfigMap in Sluice's namespace with the images of init containers that fetch data.
// Administrators write it, and all users may read it.
const ImagesConfigMap = "submission"

// imageKeys are the keys of the images that flags need: one with git 2.49 or newer, and one with rclone.
var imageKeys = map[string]string{"--git-sync": "git-image", "--s3": "s3-image"}

// Fetch is where an init container copies files from, into an empty volume, before the main container starts.
type Fetch struct {
	// Secret has the credentials. Without it, the files are public.
	Secret string
	// Source is a Git repository. Branch is a branch or a tag of it; Revision is the hash of a commit instead.
	Source, Branch, Revision string
	// Bucket is a bucket of the S3 server at URL. Key is the beginning of the names of its objects.
	Bucket, Key, URL, Region string
}

// The keys of the Secret, which are those of kubernetes.io/basic-auth and kubernetes.io/ssh-auth for Git.
const (
	secretUser, secretPassword     = corev1.BasicAuthUsernameKey, corev1.BasicAuthPasswordKey
	secretSSHKey, secretKnownHosts = corev1.SSHAuthPrivateKey, "known_hosts"
	secretS3Key, secretS3Secret    = "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"
	sshFolder, sshVolumePrefix     = "/etc/git-secret", "git-secret-"
)

// maskCredentials returns the text of --git-sync and --s3 for messages, which may end up in tickets. In Run:ai's
// notation it has passwords.
func maskCredentials(text string) string {
	parts := strings.Split(text, ",")
	for i, part := range parts {
		switch key, _, hasValue := strings.Cut(part, "="); {
		case slices.Contains([]string{"branch", "rev", "bucket", "target", "region"}, key):
		case (key == "source" || key == "url") && !mayHaveCredentials(text):
		case hasValue && mayShowKey(text, key):
			parts[i] = key + "=..."
		default:
			parts[i] = "..."
		}
	}
	return strings.Join(parts, ",")
}

// mayHaveCredentials reports whether a text may have a URL with a password or a token. A password with a comma continues
// in the next part of the text.
func mayHaveCredentials(text string) bool { return strings.ContainsAny(text, "@?") }

// mayShowKey reports whether what stands in the place of a key is one, and no part of a URL or of a password.
func mayShowKey(text, key string) bool {
	isKnown := func(k string) bool { return strings.TrimSuffix(k, "!") == key }
	return slices.ContainsFunc(mountKeys["--git-sync"], isKnown) || slices.ContainsFunc(mountKeys["--s3"], isKnown) ||
		!mayHaveCredentials(text) && keyWord.MatchString(key)
}

var keyWord = regexp.MustCompile(`^[A-Za-z]+$`)

// hostAndPath is that of a Preset's schema. A user before it, as of SSH, is no credential.
const hostAndPath = `[A-Za-z0-9][A-Za-z0-9._~+-]*(:[0-9]*)?(/([A-Za-z0-9._~:/@+-]|%[0-9A-Fa-f]{2})*)?$`

// What a part of a repository, a branch, a revision or an object may be. All begin with a character that begins no
// option, and have no $, which Kubernetes would expand in arguments.
var (
	gitURL       = regexp.MustCompile(`^(https?://|ssh://([A-Za-z0-9][A-Za-z0-9._~+-]*@)?)` + hostAndPath)
	s3URL        = regexp.MustCompile(`^https?://` + hostAndPath)
	sshText      = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.-]*@[A-Za-z0-9][A-Za-z0-9.-]*:[A-Za-z0-9_~/][A-Za-z0-9._~/+-]*$`)
	branchText   = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9._/+#@-]*$`)
	revisionText = regexp.MustCompile(`^([0-9a-f]{40}|[0-9a-f]{64})$`)
	bucketText   = regexp.MustCompile(`^[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]$`)
	keyText      = regexp.MustCompile(`^[A-Za-z0-9._][A-Za-z0-9._/=@+-]*$`)
	regionText   = regexp.MustCompile(`^[a-z0-9][a-z0-9-]*$`)
	targetText   = regexp.MustCompile(`^/[A-Za-z0-9._/-]+$`)
	accessKey    = regexp.MustCompile(`^A[KS]IA[A-Z0-9]{12,}$`)
)

// keys returns the fields by the keys of --git-sync and --s3.
func (f *Fetch) keys() map[string]*string {
	return map[string]*string{
		"source": &f.Source, "branch": &f.Branch, "rev": &f.Revision, "secret": &f.Secret,
		"bucket": &f.Bucket, "key": &f.Key, "url": &f.URL, "region": &f.Region,
	}
}

// newFetch returns the origin of these values of keys.
func newFetch(values map[string]string) *Fetch {
	f := &Fetch{}
	for key, field := range f.keys() {
		*field = values[key]
	}
	return f
}

// fetchText returns the value of --git-sync or --s3 that gives the mount.
func (m *Mount) fetchText() string {
	var parts []string
	fields := m.Fetch.keys()
	for _, key := range mountKeys[m.Flag] {
		key = strings.TrimSuffix(key, "!")
		if field := fields[key]; field != nil && *field != "" {
			parts = append(parts, key+"="+*field)
		}
	}
	return strings.Join(append(parts, "target="+m.Path), ",")
}

// validateFetch returns the first fault of an origin. Its values come from a flag or from a preset.
func (m *Mount) validateFetch() error {
	f := m.Fetch
	climbs := func(text string) bool { return slices.Contains(strings.Split(text, "/"), "..") }
	switch {
	case f == nil:
		return nil
	case path.IsAbs(m.Path) && !targetText.MatchString(m.Path):
		return m.refuse("target: want a path of the container with letters, digits, ., _ and -, such as /data")
	case f.Secret != "" && len(validation.IsDNS1123Subdomain(f.Secret)) > 0:
		return m.refuse("secret: want the name of a Secret in your project, and never a password or a key itself")
	case m.Flag == "--git-sync" && (!sshText.MatchString(f.Source) && !gitURL.MatchString(f.Source) || climbs(f.Source)):
		return m.refuse("source: want a repository such as https://git.example.org/team/model.git or git@git.example.org:team/model.git, " +
			"without a password, which belongs in a Secret: secret=NAME")
	case f.Secret != "" && strings.HasPrefix(f.Source, "http://"):
		return m.refuse("source: want https:// with a secret, so that the password is encrypted")
	case m.Flag == "--git-sync" && f.Secret == "" && f.isSSH():
		return m.refuse("source: SSH needs a key: secret=NAME, a Secret with " + secretSSHKey + " and " + secretKnownHosts)
	case f.Branch != "" && f.Revision != "":
		return m.refuse("branch and rev: give one of them; a revision needs no branch")
	case f.Branch != "" && (!branchText.MatchString(f.Branch) || strings.Contains(f.Branch, "..") || strings.HasSuffix(f.Branch, "/")):
		return m.refuse("branch: want a branch or a tag, such as main or v1.2")
	case f.Revision != "" && !revisionText.MatchString(f.Revision):
		return m.refuse("rev: want the whole hash of a commit, 40 or 64 digits and letters from a to f; a tag is given as branch=")
	case m.Flag == "--s3" && !bucketText.MatchString(f.Bucket):
		return m.refuse("bucket: want the name of a bucket, such as course-data")
	case m.Flag == "--s3" && !s3URL.MatchString(f.URL):
		return m.refuse("url: want the server, such as https://s3.example.org, without a password")
	case accessKey.MatchString(f.Key):
		return m.refuse("key: want the beginning of the objects' names; an access key belongs in a Secret: secret=NAME")
	case f.Key != "" && (!keyText.MatchString(f.Key) || climbs(f.Key)):
		return m.refuse("key: want the beginning of the objects' names, such as images/2026")
	case f.Region != "" && !regionText.MatchString(f.Region):
		return m.refuse("region: want a region such as eu-central-1")
	}
	return nil
}

func (f *Fetch) isSSH() bool {
	return sshText.MatchString(f.Source) || strings.HasPrefix(f.Source, "ssh://")
}

// addFetches adds an init container for each mount whose files are fetched. The volumes are there.
func (r *Request) addFetches(spec *corev1.PodSpec) {
	for i := range r.Mounts {
		m := &r.Mounts[i]
		if m.Fetch == nil {
			continue
		}
		number := strconv.Itoa(i + 1)
		container := corev1.Container{
			Name: "fetch-" + number, Image: r.Images[imageKeys[m.Flag]],
			VolumeMounts: []corev1.VolumeMount{{Name: volumePrefix + number, MountPath: m.Path}},
		}
		if m.Flag == "--s3" {
			m.Fetch.copyBucket(&container, m.Path)
		} else {
			m.Fetch.clone(&container, m.Path)
		}
		if m.Fetch.Source != "" && m.Fetch.Secret != "" && m.Fetch.isSSH() {
			spec.Volumes = append(spec.Volumes, corev1.Volume{Name: sshVolumePrefix + number, VolumeSource: corev1.VolumeSource{
				Secret: &corev1.SecretVolumeSource{SecretName: m.Fetch.Secret, DefaultMode: ptr.To[int32](0o400)}, // SSH refuses a key that others may read
			}})
			container.VolumeMounts = append(container.VolumeMounts,
				corev1.VolumeMount{Name: sshVolumePrefix + number, MountPath: sshFolder, ReadOnly: true})
		}
		spec.InitContainers = append(spec.InitContainers, container)
	}
}

// cloneScript clones with the arguments of git clone into the folder $0. After a restart of the node, the init container
// runs again on the same volume: then it keeps what is complete, with the user's changes, and repeats what is not.
const cloneScript = `test -e "$0/.git/fetched" || { find "$0" -mindepth 1 -delete && git clone "$@" && : > "$0/.git/fetched"; }`

// clone makes a container clone the repository, without its history. All values are arguments: the shell evaluates none.
func (f *Fetch) clone(container *corev1.Container, target string) {
	container.Command = []string{"sh", "-c", cloneScript, target, "--depth=1"}
	if f.Branch != "" {
		container.Command = append(container.Command, "--branch="+f.Branch)
	}
	if f.Revision != "" {
		container.Command = append(container.Command, "--revision="+f.Revision)
	}
	container.Command = append(container.Command, "--", f.Source, target)
	container.Env = []corev1.EnvVar{{Name: "GIT_TERMINAL_PROMPT", Value: "0"}} // fail instead of waiting for a password
	switch {
	case f.Secret == "":
	case f.isSSH():
		container.Env = append(container.Env, corev1.EnvVar{Name: "GIT_SSH_COMMAND", Value: "ssh -i " + sshFolder + "/" + secretSSHKey +
			" -o IdentitiesOnly=yes -o StrictHostKeyChecking=yes -o UserKnownHostsFile=" + sshFolder + "/" + secretKnownHosts})
	default:
		container.Env = append(container.Env,
			secretVariable("GIT_USERNAME", f.Secret, secretUser), secretVariable("GIT_PASSWORD", f.Secret, secretPassword),
			// The helper answers for this server only, not for one to which it redirects.
			corev1.EnvVar{Name: "GIT_CONFIG_COUNT", Value: "1"},
			corev1.EnvVar{Name: "GIT_CONFIG_KEY_0", Value: "credential." + serverOf(f.Source) + ".helper"},
			corev1.EnvVar{Name: "GIT_CONFIG_VALUE_0", Value: `!f() { test "$1" = get && printf 'username=%s\npassword=%s\n' "$GIT_USERNAME" "$GIT_PASSWORD"; }; f`})
	}
}

// copyBucket makes a container copy the objects.
func (f *Fetch) copyBucket(container *corev1.Container, target string) {
	container.Command = []string{"rclone", "copy", "s3:" + strings.TrimSuffix(f.Bucket+"/"+f.Key, "/"), target}
	container.Env = []corev1.EnvVar{
		{Name: "RCLONE_CONFIG_S3_TYPE", Value: "s3"},
		{Name: "RCLONE_CONFIG_S3_PROVIDER", Value: "Other"},
		{Name: "RCLONE_CONFIG_S3_ENDPOINT", Value: f.URL},
	}
	if f.Region != "" {
		container.Env = append(container.Env, corev1.EnvVar{Name: "RCLONE_CONFIG_S3_REGION", Value: f.Region})
	}
	if f.Secret != "" {
		container.Env = append(container.Env, secretVariable("RCLONE_CONFIG_S3_ACCESS_KEY_ID", f.Secret, secretS3Key),
			secretVariable("RCLONE_CONFIG_S3_SECRET_ACCESS_KEY", f.Secret, secretS3Secret))
	}
}

func secretVariable(name, secret, key string) corev1.EnvVar {
	return corev1.EnvVar{Name: name, ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{
		LocalObjectReference: corev1.LocalObjectReference{Name: secret}, Key: key,
	}}}
}

// serverOf returns the scheme and the host of a URL.
func serverOf(source string) string {
	u, err := url.Parse(source)
	if err != nil {
		return source // validateFetch refuses what is no URL
	}
	return u.Scheme + "://" + u.Host
}

// MissingImages returns the keys of the images that the request needs and does not have.
func (r *Request) MissingImages() (keys []string) {
	for i := range r.Mounts {
		if key := imageKeys[r.Mounts[i].Flag]; key != "" && r.Images[key] == "" && !slices.Contains(keys, key) {
			keys = append(keys, key)
		}
	}
	return keys
}

// validateImages returns a fault for each image that the cluster does not name, or that is none.
func (r *Request) validateImages() (problems []error) {
	for _, key := range r.MissingImages() {
		flag := "--git-sync"
		if key == imageKeys["--s3"] {
			flag = "--s3"
		}
		problems = append(problems, fmt.Errorf("%s: this cluster names no image for it; ask your administrators to set %s in ConfigMap %s of namespace %s",
			flag, key, ImagesConfigMap, v1alpha1.SystemNamespace))
	}
	for key, image := range r.Images {
		if strings.ContainsAny(image, " \t\r\n") || strings.HasPrefix(image, "-") {
			problems = append(problems, fmt.Errorf("%s %q in ConfigMap %s of namespace %s: it is no image; ask your administrators to correct it",
				key, image, ImagesConfigMap, v1alpha1.SystemNamespace))
		}
	}
	return problems
}
