// live.js - talking to the program that serves this page; does nothing in a saved file.

const live = null;
