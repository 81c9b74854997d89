package manifest

var refusals []struct{ in string }
