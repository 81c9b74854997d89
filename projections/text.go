package projections

// texts holds short strings one after another, so that what refers to them
// holds no pointer. What a rollback leaves behind is never referred to.
type texts struct{ pages [][]byte }

// textRef finds a string in a texts: page and place. 0 is the empty string.
type textRef uint64

const textPage = 1 << 16

// add keeps s, of 255 bytes at most.
func (t *texts) add(s string) textRef { return addText(t, s) }

func addText[T string | []byte](t *texts, s T) textRef {
	if len(s) == 0 {
		return 0
	}
	last := len(t.pages) - 1
	if last < 0 || len(t.pages[last])+1+len(s) > textPage {
		page := make([]byte, 0, textPage)
		if last < 0 {
			page = append(page, 0) // place 0 of page 0 is nobody's
		}
		t.pages = append(t.pages, page)
		last++
	}
	at := textRef(last*textPage + len(t.pages[last]))
	t.pages[last] = append(append(t.pages[last], byte(len(s))), s...)
	return at
}

func (t *texts) get(r textRef) string {
	if r == 0 {
		return ""
	}
	page, at := t.pages[r/textPage], r%textPage
	return string(page[at+1:][:page[at]])
}
