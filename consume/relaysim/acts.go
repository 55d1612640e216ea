package relaysim

type actKind uint8

// The kinds of acts, after the frames that they become.
const (
	actCommit actKind = iota
	actTooBig
	actSync
	actIdentity
	actAccount
)

// draw lets an account act as accounts of the live network do. Of the ops some 65 % are likes, 12 %
// posts, 10 % reposts and 8 % follows.
func (w *world) draw(a *account) act {
	switch n := w.rng.IntN(1000); {
	case n < 648:
		return commitOf(w.like(a))
	case n < 760:
		return act{ops: w.postOps(a)}
	case n < 859:
		return commitOf(a.create("app.bsky.feed.repost", w.tid(), w.subjectRecord()))
	case n < 934:
		return act{ops: w.followOps(a)}
	case n < 941:
		return commitOf(w.profile(a))
	case n < 948:
		return commitOf(w.block(a))
	case n < 955:
		return act{ops: w.listOps(a)}
	case n < 965:
		return commitOf(w.otherRecord(a))
	case n < 988:
		return act{ops: w.deletes(a)}
	case n < 992:
		return act{kind: actIdentity}
	case n < 996:
		return w.accountAct(a)
	case n < 998:
		return act{kind: actSync}
	}
	return w.tooBig(a)
}

func commitOf(o op) act { return act{ops: []op{o}} }

func (w *world) like(a *account) op {
	return a.create("app.bsky.feed.like", w.tid(), w.subjectRecord())
}

// postOps makes a post, now and then with the gates that belong to it.
func (w *world) postOps(a *account) []op {
	rkey := w.tid()
	post := a.create("app.bsky.feed.post", rkey, w.postRecord(a))
	uri := "at://" + a.did + "/" + post.path
	w.posts = KeepSome(w.rng, w.posts, recentPosts, postRef{uri: uri, cid: blockCID(post.record).String()})
	ops := []op{post}
	if w.chance(12) {
		ops = append(ops, a.create("app.bsky.feed.threadgate", rkey, w.threadgateRecord(uri)))
		if w.chance(2) {
			ops = append(ops, a.create("app.bsky.feed.postgate", rkey, w.postgateRecord(uri)))
		}
	}
	return ops
}

// followOps follows someone, now and then everyone of a starter pack.
func (w *world) followOps(a *account) []op {
	n := 1
	if w.chance(60) {
		n = 5 + w.rng.IntN(30)
	}
	ops := make([]op, 0, n)
	for range n {
		ops = append(ops, a.create("app.bsky.graph.follow", w.tid(), map[string]any{
			"createdAt": w.timestamp(), "subject": w.drawDID(),
		}))
	}
	return ops
}

// profile creates or updates the account's profile.
func (w *world) profile(a *account) op {
	o := a.create("app.bsky.actor.profile", "self", w.profileRecord(a))
	if a.profile {
		a.paths = a.paths[:len(a.paths)-1] // it was there before
	}
	a.profile = true
	return o
}

func (w *world) block(a *account) op {
	if w.chance(8) {
		return a.create("app.bsky.graph.listblock", w.tid(), map[string]any{
			"createdAt": w.timestamp(), "subject": "at://" + w.drawDID() + "/app.bsky.graph.list/" + w.pastTID(),
		})
	}
	return a.create("app.bsky.graph.block", w.tid(), map[string]any{
		"createdAt": w.timestamp(), "subject": w.drawDID(),
	})
}

// listOps makes a list with some items, or adds to an old one.
func (w *world) listOps(a *account) []op {
	var ops []op
	list := w.pastTID()
	if w.chance(3) {
		list = w.tid()
		ops = append(ops, a.create("app.bsky.graph.list", list, w.listRecord()))
	}
	for range 1 + w.rng.IntN(4) {
		ops = append(ops, a.create("app.bsky.graph.listitem", w.tid(), map[string]any{
			"createdAt": w.timestamp(), "subject": w.drawDID(), "list": "at://" + a.did + "/app.bsky.graph.list/" + list,
		}))
	}
	return ops
}

// deletes removes a record, now and then many, or does both: removes one and makes another.
func (w *world) deletes(a *account) []op {
	n := 1
	if w.chance(15) {
		n = 2 + w.rng.IntN(20)
	}
	var ops []op
	for range n {
		path, ok := a.takePath(w)
		if !ok {
			break
		}
		ops = append(ops, op{path: path})
	}
	if len(ops) == 0 || w.chance(20) {
		ops = append(ops, w.like(a))
	}
	return ops
}

// accountAct takes an account down, or brings it back.
func (w *world) accountAct(a *account) act {
	a.inactive = !a.inactive
	status := ""
	if a.inactive {
		all := []string{"deactivated", "deactivated", "deleted", "takendown", "suspended"}
		status = all[w.rng.IntN(len(all))]
	}
	return act{kind: actAccount, status: status}
}

// tooBig makes a commit that is not sent whole.
func (w *world) tooBig(a *account) act {
	ops := make([]op, 0, 20)
	for range 20 {
		ops = append(ops, w.like(a))
	}
	return act{kind: actTooBig, ops: ops}
}
